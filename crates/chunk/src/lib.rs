//! Pure computation on chunks: null test, chunkers, fingerprints, signatures, filters.
