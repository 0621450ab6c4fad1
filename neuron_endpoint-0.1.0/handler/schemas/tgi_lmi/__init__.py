"""The `inputs` schema of TGI and of DJL's LMI."""
