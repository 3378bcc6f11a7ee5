"""Adapters and logits against llama.cpp (by llama-cpp-python) and against PyTorch with transformers and PEFT.

    scripts/interop [MODEL.gguf ...]      default: the real models of scripts/models

For each model, on the tokens of one text:

- its weights are decoded with the `gguf` package and written as a float32 GGUF, and put into transformers' own class;
- PEFT makes a random adapter and saves it; the `gguf` package writes the same matrices as a GGUF adapter. Both must load
  here with the same bytes of logits, near what PEFT and llama.cpp compute with them;
- two steps of `apprentice train` from there are written as a PEFT folder and as a GGUF adapter. Both must load there.

Prints a table in Markdown: the largest difference of a logit, the squares of all differences over the squares of all
logits (NMSE), the mean Kullback-Leibler divergence of a position in nats, and the positions with the same likeliest
token. Exit code 0: every bound is kept; 1: one is missed.
"""

import contextlib
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version

import gguf
import numpy
import torch
import transformers
from gguf.quants import dequantize
from peft import LoraConfig, PeftModel, get_peft_model

TEXT = (
    "A lighthouse keeper on the northern coast wrote down the weather every evening. In March the wind turned, and "
    "the ships stayed in the harbour for nine days. Question: why did the ships stay? Answer:"
)
RANK, ALPHA = 4, 8.0
STEPS = 2
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# On decoded weights: the largest difference of a logit.
LARGEST = 1e-3
# On the quantised file, where llama.cpp rounds activations to eight bits and float32 numerics do not: squares of all
# differences over squares of all logits.
NMSE = 1e-2
# On decoded weights of a model with GELU, which llama.cpp takes from a table in float16: NMSE.
NMSE_TABLE = 1e-6


class Figures:
    """The table, and whether every bound was kept."""

    def __init__(self):
        self.kept = True

    def compare(self, model, what, ours, theirs, largest=None, nmse=None):
        ours, theirs = ours.astype(numpy.float64), theirs.astype(numpy.float64)
        found = {
            "largest": numpy.abs(ours - theirs).max(),
            "nmse": ((ours - theirs) ** 2).sum() / (ours**2).sum(),
        }
        a, b = log_softmax(ours), log_softmax(theirs)
        divergence = (numpy.exp(b) * (b - a)).sum(1).mean()
        same = int((ours.argmax(1) == theirs.argmax(1)).sum())
        verdict = ""
        for name, bound in (("largest", largest), ("nmse", nmse)):
            if bound is not None:
                kept = bool(found[name] <= bound)  # false for a NaN
                self.kept &= kept
                verdict = f"{name} <= {bound:.0e}: {'kept' if kept else 'MISSED'}"
        cells = [f"{found['largest']:.1e}", f"{found['nmse']:.1e}", f"{abs(divergence):.1e}", f"{same}/{len(ours)}"]
        self.row(model, what, *cells, verdict)

    def same_bytes(self, model, what, one, other):
        same = one.tobytes() == other.tobytes()
        self.kept &= same
        self.row(model, what, "0" if same else "", "", "", "", f"same bytes: {'kept' if same else 'MISSED'}")

    def row(self, *cells):
        print("|", " | ".join(cells), "|", flush=True)


def log_softmax(logits):
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - numpy.log(numpy.exp(shifted).sum(1, keepdims=True))


class Ours:
    """The binary."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder

    def run(self, *arguments):
        done = subprocess.run([self.binary, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"apprentice {' '.join(map(str, arguments))}: exit code {done.returncode}")
        return done.stdout

    def tokens(self, model):
        lines = self.run("tokens", "-m", model, "--bos", "--text", TEXT).splitlines()
        return [int(line.split()[0]) for line in lines]

    def logits(self, model, tokens, adapter=None, numerics="f32"):
        out = self.folder / "logits.npy"
        arguments = ["--tokens", ",".join(map(str, tokens)), "--out", out, "--numerics", numerics, "--cache", "f32"]
        if adapter is not None:
            arguments += ["--adapter", adapter]
        self.run("logits", "-m", model, *arguments)
        return numpy.load(out)

    def train(self, model, tokens, adapter, output):
        labels = tokens[1:] + [-1]
        labels[:8] = [-1] * 8
        example = self.folder / "example.json"
        example.write_text(json.dumps({"tokens": tokens, "labels": labels, "objective": "all"}))
        self.run(
            "train", "-m", model, "--example", example, "--adapter", adapter, "--output", output, "--steps", STEPS,
            "--numerics", "f32",
        )


class File:
    """A model's GGUF file as gguf-py reads it."""

    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.architecture = self.value("general.architecture")

    def value(self, key, default=None):
        field = self.reader.get_field(key)
        return default if field is None else field.contents()

    def has_gelu(self):
        return self.architecture == "gemma3"

    def own(self, key, default=None):
        return self.value(f"{self.architecture}.{key}", default)

    def tensors(self):
        for tensor in self.reader.tensors:
            shape = [int(size) for size in reversed(tensor.shape)]
            yield tensor.name, dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32).reshape(shape)

    def write_float32(self, path):
        """The same metadata with every tensor in float32."""
        writer = gguf.GGUFWriter(path, self.architecture)
        for field in self.reader.fields.values():
            if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
                continue
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, inner)
        writer.add_file_type(gguf.LlamaFileType.ALL_F32)
        for name, values in self.tensors():
            writer.add_tensor(name, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    # Which of transformers' names a tensor has, and in which order its rows are.

    NAMES = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
        "ffn_norm": "post_attention_layernorm",
    }
    NAMES_NORMED = {
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    }

    def their_name(self, name):
        names = {**self.NAMES, **(self.NAMES_NORMED if self.architecture == "gemma3" else {})}
        if name in names:
            return names[name]
        _, layer, part, kind = name.split(".")
        return f"model.layers.{layer}.{names[part]}.{kind}"

    def their_rows(self, name, rows):
        """For each of their rows the file's: only this architecture interleaves rotation pairs in queries and keys."""
        order = numpy.arange(rows)
        part = name.split(".")[2] if name.startswith("blk.") else ""
        if self.architecture == "llama" and part in ("attn_q", "attn_k"):
            heads = self.own("attention.head_count" if part == "attn_q" else "attention.head_count_kv")
            order = order.reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)
        return order

    def torch_model(self):
        width, heads = self.own("embedding_length"), self.own("attention.head_count")
        names = {tensor.name: tensor for tensor in self.reader.tensors}
        base = self.own("rope.freq_base", 10000.0)
        common = dict(
            vocab_size=int(names["token_embd.weight"].shape[1]),
            hidden_size=width,
            intermediate_size=self.own("feed_forward_length"),
            num_hidden_layers=self.own("block_count"),
            num_attention_heads=heads,
            num_key_value_heads=self.own("attention.head_count_kv"),
            head_dim=self.own("attention.key_length", width // heads),
            rms_norm_eps=self.own("attention.layer_norm_rms_epsilon"),
            max_position_embeddings=self.own("context_length"),
            tie_word_embeddings="output.weight" not in names,
            attn_implementation="eager",
        )
        if self.architecture == "llama":
            config = transformers.LlamaConfig(**common, rope_parameters=rope(base))
            kind = transformers.LlamaForCausalLM
        elif self.architecture == "qwen2":
            config = transformers.Qwen2Config(**common, rope_parameters=rope(base))
            kind = transformers.Qwen2ForCausalLM
        elif self.architecture == "gemma3":
            layers = ["full_attention" if (layer + 1) % 6 == 0 else "sliding_attention"
                      for layer in range(common["num_hidden_layers"])]
            config = transformers.Gemma3TextConfig(
                **common,
                sliding_window=self.own("attention.sliding_window"),
                query_pre_attn_scalar=common["head_dim"],
                layer_types=layers,
                rope_parameters={
                    "full_attention": rope(base),
                    "sliding_attention": rope(self.own("rope.freq_base_swa", 10000.0)),
                },
            )
            kind = transformers.Gemma3ForCausalLM
        else:
            raise SystemExit(f"{self.architecture}: this script has no class of transformers for it")
        model = kind(config).float().eval()
        state = {}
        for name, values in self.tensors():
            values = values[self.their_rows(name, len(values))]
            if self.architecture == "gemma3" and "norm" in name:
                values = values - 1  # their class adds it
            state[self.their_name(name)] = torch.from_numpy(values.copy())
        missing, unexpected = model.load_state_dict(state, strict=False)
        if unexpected or any(name != "lm_head.weight" for name in missing):
            raise SystemExit(f"tensors that do not fit: missing {missing}, unexpected {unexpected}")
        return model

    def write_adapter(self, peft_model, path):
        """The matrices of a PEFT model as a GGUF adapter."""
        state = peft_model.state_dict()
        writer = gguf.GGUFWriter(path, self.architecture)
        writer.add_type(gguf.GGUFType.ADAPTER)
        writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
        writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, ALPHA)
        for tensor in self.reader.tensors:
            module = "base_model.model." + self.their_name(tensor.name).removesuffix(".weight")
            if f"{module}.lora_A.default.weight" not in state:
                continue
            a = state[f"{module}.lora_A.default.weight"].numpy()
            b = state[f"{module}.lora_B.default.weight"].numpy()
            laid = numpy.empty_like(b)
            laid[self.their_rows(tensor.name, len(b))] = b
            writer.add_tensor(f"{tensor.name}.lora_a", a)
            writer.add_tensor(f"{tensor.name}.lora_b", laid)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def rope(base):
    return {"rope_type": "default", "rope_theta": float(base)}


def random_adapter(model, seed):
    """PEFT's own class with both matrices random, so that it changes every logit."""
    torch.manual_seed(seed)
    peft_model = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS))
    with torch.no_grad():
        for name, parameter in peft_model.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.3 * parameter.shape[1] ** -0.5 if "lora_A" in name else 0.02)
    return peft_model.eval()


@contextlib.contextmanager
def gelu_by_table(model):
    """GELU as ggml computes it on a processor: argument and result in float16, exact beyond 10."""

    def gelu(x):
        tabled = torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
        return torch.where(x <= -10, torch.zeros_like(x), torch.where(x >= 10, x, tabled))

    functions = [layer.mlp.act_fn for layer in model.model.layers]
    before = [function.forward for function in functions]
    for function in functions:
        function.forward = gelu
    yield
    for function, forward in zip(functions, before):
        function.forward = forward


def torch_logits(model, tokens):
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens])).logits[0].float().numpy()


def llama_logits(path, tokens, adapter=None):
    import llama_cpp

    threads = len(os.sched_getaffinity(0))
    llama = llama_cpp.Llama(
        model_path=str(path), n_ctx=256, n_batch=256, logits_all=True, verbose=False,
        n_threads=threads, n_threads_batch=threads,
        type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32,
        lora_path=None if adapter is None else str(adapter),
    )
    llama.eval(tokens)
    logits = numpy.array(llama.scores[: len(tokens)], dtype=numpy.float32)
    llama.close()
    return logits


def check(ours, path, figures, folder):
    name, file = path.stem, File(path)
    tokens = ours.tokens(path)
    decoded = folder / "decoded.gguf"
    file.write_float32(decoded)

    plain, plain_decoded = ours.logits(path, tokens), ours.logits(decoded, tokens)
    figures.same_bytes(name, "ours: the file, and its decoded weights", plain, plain_decoded)
    model = file.torch_model()
    figures.compare(name, "transformers, decoded weights", plain, torch_logits(model, tokens), largest=LARGEST)
    # ggml's GELU goes by a table in float16.
    compare_decoded = {"nmse": NMSE_TABLE} if file.has_gelu() else {"largest": LARGEST}
    theirs = llama_logits(decoded, tokens)
    figures.compare(name, "llama.cpp, decoded weights", plain, theirs, **compare_decoded)
    if file.has_gelu():
        with gelu_by_table(model):
            tabled = torch_logits(model, tokens)
        figures.compare(name, "transformers with ggml's GELU, and llama.cpp", tabled, theirs)
    quantised = llama_logits(path, tokens)
    figures.compare(name, "llama.cpp, quantised file", plain, quantised, nmse=NMSE)
    rounded = ours.logits(path, tokens, numerics="q8")
    figures.compare(name, "ours under q8", plain, rounded)
    figures.compare(name, "ours under q8, and llama.cpp, quantised file", rounded, quantised, nmse=NMSE)

    # Theirs here.
    peft_model = random_adapter(model, 7)
    theirs_peft, theirs_gguf = folder / "theirs", folder / "theirs.gguf"
    peft_model.save_pretrained(theirs_peft)
    file.write_adapter(peft_model, theirs_gguf)
    adapted = ours.logits(path, tokens, theirs_peft)
    figures.compare(name, "what their adapter changes", plain, adapted)
    figures.same_bytes(name, "ours: their PEFT folder, and their GGUF adapter", adapted,
                       ours.logits(path, tokens, theirs_gguf))
    figures.compare(name, "PEFT, their folder", adapted, torch_logits(peft_model, tokens), largest=LARGEST)
    figures.compare(name, "llama.cpp, decoded weights, their GGUF adapter", adapted,
                    llama_logits(decoded, tokens, theirs_gguf), **compare_decoded)
    figures.compare(name, "llama.cpp, quantised file, their GGUF adapter", adapted,
                    llama_logits(path, tokens, theirs_gguf), nmse=NMSE)

    # Ours there.
    ours_peft, ours_gguf = folder / "ours", folder / "ours.gguf"
    ours.train(path, tokens, theirs_peft, ours_peft)
    ours.train(path, tokens, theirs_peft, ours_gguf)
    trained = ours.logits(path, tokens, ours_gguf)
    figures.compare(name, "what two steps change", adapted, trained)
    figures.same_bytes(name, "ours: our PEFT folder, and our GGUF adapter", trained,
                       ours.logits(path, tokens, ours_peft))
    loaded = PeftModel.from_pretrained(peft_model.unload(), ours_peft).eval()
    figures.compare(name, "PEFT, our folder", trained, torch_logits(loaded, tokens), largest=LARGEST)
    figures.compare(name, "llama.cpp, decoded weights, our GGUF adapter", trained,
                    llama_logits(decoded, tokens, ours_gguf), **compare_decoded)
    figures.compare(name, "llama.cpp, quantised file, our GGUF adapter", trained,
                    llama_logits(path, tokens, ours_gguf), nmse=NMSE)
    for large in (decoded, ours_gguf, theirs_gguf):
        large.unlink()


def main(binary, models):
    packages = ["llama-cpp-python", "gguf", "torch", "transformers", "peft", "numpy"]
    print("Python", platform.python_version() + ",", ", ".join(f"{name} {version(name)}" for name in packages))
    figures = Figures()
    figures.row("model", "compared with ours, float32", "largest", "NMSE", "KL", "same token", "bound")
    figures.row(*["---"] * 7)
    for model in models:
        with tempfile.TemporaryDirectory(prefix="interop-") as folder:
            folder = pathlib.Path(folder)
            check(Ours(binary, folder), pathlib.Path(model), figures, folder)
    return 0 if figures.kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
