"""Makes the helpers beside this file importable from every folder below it (pytest adds its folder to `sys.path`)."""
