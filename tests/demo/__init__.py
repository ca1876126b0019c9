"""`make demo`: gpushim in a real Docker, on this machine's GPUs or on a fake host's.

`__main__` sets the stage and takes it down again, `acts` holds what is shown, one function each;
every line that says `ok` is an expectation that was checked, and the exit status tells of them all.
"""
