"""The parts of cost: amounts by sizes, the rule of each construct, counting a run."""
