"""Storages that are away for long: just as many are left as a majority needs, and now and then they are others."""

import asyncio
import random

from tests.simulation.target import Target


async def keep_storages_away(target: Target) -> None:
    """From the beginning of the faults to their end, as many as the options say."""
    draw = target.world.random("absence")
    storages, count = target.cluster.storages, target.world.options.away_storages
    await asyncio.sleep(draw.uniform(1.0, 4.0))
    while True:
        away = draw.sample(storages, count)
        target.world.trace.line("FAULT", f"{' and '.join(storage.name for storage in away)} are away")
        for storage in away:
            storage.kept_away = True
            storage.crash(power_loss=draw.random() < 0.5)
        for storage in storages:
            if storage.kept_away and storage not in away:
                storage.kept_away = False
                storage.start_in(_return_delay_s(draw))
        await asyncio.sleep(draw.choice((1.0, 3.0, 8.0)) * (0.5 + draw.random()))


def _return_delay_s(draw: random.Random) -> float:
    return draw.choice((0.0, 0.0, 0.3, 2.0))
