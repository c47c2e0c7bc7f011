"""Three ways on from one state, side by side: each in a branch of its own, and the best one is kept."""

import asyncio
import tempfile

from cellblock import AsyncSandbox

SETUP = "data = [5, 3, 8, 1, 9, 2]"
PLANS = ["result = sorted(data)", "result = sorted(data, reverse=True)", "result = data[::-1]"]
SCORE = "sum(a < b for a, b in zip(result, result[1:]))"


async def main():
    with tempfile.TemporaryDirectory() as work:
        async with AsyncSandbox("agent", workspace=work) as sb:
            await sb.run(SETUP, check=True)
            await sb.checkpoint("clean")
            branches = [sb.branch("clean") for _ in PLANS]

            async def attempt(branch, plan):
                await branch.run(plan, check=True)
                return int((await branch.run(SCORE)).repr)

            scores = await asyncio.gather(*map(attempt, branches, PLANS))
            best = scores.index(max(scores))
            await sb.adopt(branches[best])
            for branch in branches:
                await branch.close()
            print(f"scores {scores}; the best: {PLANS[best]}; {(await sb.run('result')).repr}")


asyncio.run(main())
