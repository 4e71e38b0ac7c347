"""Jobs as those who submit them write them: the contract, its reader, and its JSON schema."""
