"""Sites as arrays: many episodes at once, one decision per arriving task. Seeds decide everything.

fleet = Fleet(Scenario(devices=(4, 12)), seed=1)
fleet.reset(np.repeat(np.arange(16), 16).tolist())    # 16 copies of each of 16 streams
while not fleet.done:
    rows, mask, context = fleet.observe()             # [256, D, F], [256, D], [256, C]
    step = fleet.step(actions)                        # step.reward [256], step.terms [256, 4]
fleet.metrics().means()
"""
