"""Random words, digests, sums and packing: what every other part stands on."""

import torch

from kernels.digest import op as digest
from kernels.pack import op as pack
from kernels.philox import op as philox
from kernels.reduce import op as reduce
from tests.kernels.cases.registry import case


@case("philox_words", "philox_uniforms")
class philox_words:
    def inputs(g):
        edges = torch.tensor([0, 1, 2**31, 2**32 - 1])
        return {"rows": torch.cat([edges, torch.randint(0, 2**32, (37,), generator=g)]), "step": torch.tensor(41)}

    def call(x):
        by_number = philox.words(2**63 + 7, "action", 3, x["rows"], 5)
        by_step = philox.words(7, "replay", x["step"], x["rows"], 1)
        uniforms = [philox.uniforms(7, "replay", step, x["rows"]) for step in (x["step"], 41)]
        return by_number, by_step, philox.uniform(by_number), *uniforms


@case("digest_sums", "digest_finish", captured=False)
class digests:
    def inputs(g):
        raw = torch.randint(-128, 128, (66_000,), generator=g, dtype=torch.int8)
        return {
            "none": raw[:0], "byte": raw[:1], "odd": raw[1:302], "off": raw[3:27], "flags": raw[:77] > 0,
            "floats": torch.randn(33, 7, generator=g), "one_chunk": raw[:32_768].view(torch.int64),
            "three_chunks": raw.view(torch.int64),
        }  # fmt: skip

    def call(x):
        found = [*(digest.digest64(tensor) for tensor in x.values()), digest.digest64(x["odd"], 5 - 2**63)]
        return (torch.tensor([d - 2**64 if d >= 2**63 else d for d in found]),)


@case("digest_sums", "digest_finish", captured=False)
class digests_of_lists:
    def inputs(g):
        raw = torch.randint(-128, 128, (33_000,), generator=g, dtype=torch.int8)
        return {"odd": raw[1:302], "half": raw[4:1204].view(torch.float32), "long": raw, "seed": torch.tensor([-9])}

    def call(x):
        seed = x["seed"].clone()
        parts = [[x["odd"], x["half"], x["long"]], x["half"], x["half"], [x["half"], x["odd"]]]
        found = digest.Digests(parts, [3, seed, 0, 0], narrow=[2, 3])
        return found.run(), found.run(), seed


@case("reduce_parts")
class row_sums:
    def inputs(g):
        return {f"x{rows}": torch.randn(rows, 33, generator=g) for rows in (1, 7, 256, 300, 700)}

    def call(x):
        return tuple(reduce.sum_rows(rows) for rows in x.values())


@case("pack_words")
class packed_numbers:
    def inputs(g):
        x = torch.randn(150, generator=g)
        exact = torch.tensor([2**63 - 1, -7])
        parts = {"f32": x, "f64": x[:5].double() * 1e-300, "i32": (x[:4] * 1e6).int(), "i64": exact}
        small = {"i8": (x[:9] * 30).to(torch.int8), "u8": exact.to(torch.uint8), "flag": x[:6] > 0, "none": x[:0]}
        return {**parts, **small, **{f"scalar {i}": x[i] for i in range(7)}}  # more than a launch takes

    def call(x):
        out = torch.empty(sum(part.numel() for part in x.values()), dtype=torch.int64, device=x["f32"].device)
        pack.words(list(x.values()), out)
        return (out,)
