"""
`python -m bookkeeper.folds`: the process that plans folds, see `worker`. A bookkeeper starts it; no person does.
"""

from bookkeeper.folds.worker import main

if __name__ == "__main__":
    main()
