"""One file per fault, named as the rule it must trigger."""
