"""What every route shares: bodies and limits, custom attributes, the record of a request, errors as HTTP."""
