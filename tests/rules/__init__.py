"""
The registry of rules: what holds in the protocol, the mutant that breaks it, and who must turn red then.

A module here is a chapter of the protocol. Each of its functions is a mutant: it puts something wrong in the place of a
part of the product. `@rule(...)` above it says the sentence that holds without it, and the systems that must find it:

    enumeration   `Scene`: crashes and errors at chosen operations of a scene of tests/chaos
    simulation    `Simulated`: random worlds of tests/simulation, within so many ticks
    histories     `Walked`: random walks of tests/histories, by the property that is broken
    model         `Modelled`: a rule of tests/model that is left out there; `Recorded`: runs of the broken code that the
                  model refuses
    a test        `Fails`: it fails while the mutant is in its place

`make rules` looks at all of them, CI and `make test` at a part in each run (`rotation.py`). `measured.json` says how
long each took, in seconds of a core, and after how much of what the system counts by.
"""
