"""Make it happen: a data-parallel engine without the model, with faults on demand. Stands alone: imports none of the other rooms."""
