"""OpenADR 3: Headroom as a virtual end node (VEN) of a grid's virtual top node (VTN).

Opt-in by settings: where ``OPENADR_VTN_URL`` is empty nothing is asked of anybody. Events of one
program become curtailments of one site, and what was kept of each is reported back.
"""
