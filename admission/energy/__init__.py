"""The ledger of energy: each hour of the fleet closed against its meters, kept by place and job."""
