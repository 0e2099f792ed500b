# %% [markdown]
# # Missing facts of a DataFrame
# Runs as it is (`python examples/dataframes.py`) and opens as a notebook in Jupyter (with jupytext), VS Code or PyCharm.

# %%
import pandas as pd

import harmonium

graph = harmonium.load("atlas")
columns = ["head", "relation", "tail"]
facts = pd.DataFrame(graph.spell(graph.train), columns=columns)
held_out = pd.DataFrame(graph.spell(graph.test), columns=columns)
print(facts.head())

# %% [markdown]
# How long will training take here, and how much memory?

# %%
settings = ["train.batch_size=256", "train.negatives=16"]
plan = harmonium.plan(data=facts, sets=["model.rank=2", "train.epochs=6", *settings])
print(f"about {plan.total_seconds:.0f} s and {plan.peak_memory / 1e6:.0f} MB")

# %% [markdown]
# `faithfulness` is the paper's lambda: how strongly a fact's token is held to the vector composed of its three parts.
# A small one lets the network reshape it by what it has learned, `inf` not at all.

# %%
model = harmonium.LinkPredictor(rank=2, faithfulness=1.0, epochs=6, learning_rate=0.03, sets=settings)
model.fit(facts)
print("filtered MRR of facts never shown:", round(model.score(held_out), 3))

# %% [markdown]
# Who borders Austria? (Six passes over the facts are a taste; the default is a hundred.)
# Facts that are known are marked; the rest come with a probability.

# %%
questions = pd.DataFrame({"head": ["Austria", "Switzerland"], "relation": ["borders", "official language"]})
answers = model.answer(questions, top=5).to_pandas()
print(answers[["head", "relation", "name", "known", "probability"]])

# %% [markdown]
# Is it true? Probabilities of a classifier, as scikit-learn gives them.

# %%
claims = pd.DataFrame([("Austria", "borders", "Hungary"), ("Austria", "borders", "Japan")], columns=columns)
print(claims.assign(called_true=model.predict(claims), probability=model.predict_proba(claims)[:, 1]))

# %% [markdown]
# Everything else takes the run: tables by relation, the facts that are most likely missing, the guises of an entity.

# %%
print(harmonium.evaluate(model.run_, split="valid").to_pandas().head(8))
print(harmonium.complete(model.run_, "borders", top=5).to_pandas())
print(harmonium.neighbours(model.run_, "Switzerland", "official language", "French").to_pandas())
