"""Jobs as users write them: the specification's contract, its reader, and its JSON schema."""
