"""Names people already use, a file for each dialect: pure translators from a name and a value to fields.

Each has `translate(name, value)`, which gives assignments and raises `SettingError`, and says which names it reads.
"""
