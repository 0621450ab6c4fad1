"""The store of compiled artifacts: manifests, objects named by digest, publication, signatures, garbage collection."""
