"""How often slowrank is right: labelled runs, a scorer that alone opens the label files, and the tables of docs/accuracy.md.

Data flows one way: `plan` (which runs) -> `runs` (their captures) -> `observe` (what slowrank says of a capture; knows no label) ->
`judge` (the truth beside it) -> `goals`, `ablate`, `calibrate` (figures) -> `document`. `alarms` counts on healthy load, `field` feeds
cases that others reported.
"""
