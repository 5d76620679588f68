"""The stand-in for vendors of models says what its script says: the vendors' own packages read every field of it, and its refusals."""

import asyncio
import sys
from pathlib import Path

from waiting import NotSo

WITNESS = Path(__file__).resolve().parents[2] / "models"


async def prove(proof):
    sys.path.insert(0, str(WITNESS))
    try:
        import witness
    except ImportError as missing:
        raise NotSo(f"{missing}: run `make setup` with Python 3.11 or newer, which installs the vendors' packages") from None
    try:
        # In a thread: it has event loops of its own.
        await asyncio.to_thread(witness.attest, proof.note, proof.short)
    except witness.NotAsScripted as wrong:
        raise NotSo(str(wrong)) from wrong
