"""The gated delta rule over packed sequences: flash-linear-attention's kernel, and the plain recurrence.

q, k [N, key heads, E], v [N, value heads, E]; decay (log) and beta [N, value heads]; starts [S + 1]
int32. q and k are normalised to length one, q also scaled by E^-1/2; each key head serves a run of
value heads.  -> o [N, value heads, E].

`python delta_rule.py` compares values and gradients of the kernel with the recurrence in float64.
Run it once on a new kind of GPU before training there: on Hopper, Triton 3.4 to 3.7.0 compiles one of
the kernel's backward passes wrongly for small key tiles (flash-linear-attention issue 640).
"""
import torch
import torch.nn.functional as F
from torch import Tensor

if torch.cuda.is_available():
    import triton

    # One configuration for each kernel: autotuning them costs minutes and gains little here. The
    # backward pass of the WY representation is compiled wrongly with 4 warps on Hopper; it gets 2.
    _autotune = triton.autotune

    def _one_configuration(configs, key, **options):
        def decorate(kernel):
            name = getattr(getattr(kernel, "fn", kernel), "__name__", "")
            warps = 2 if "wy_repr_bwd" in name else 4
            nearest = min(configs, key=lambda c: (abs((c.num_warps or 4) - warps),
                                                  abs((c.num_stages or 3) - 2)))
            return _autotune(configs=[nearest], key=key, **options)(kernel)
        return decorate

    triton.autotune = _one_configuration
    import fla.ops.common.chunk_o
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    triton.autotune = _autotune
    # The kernel refuses Hopper with these versions of Triton; with heads of 128 the tile is not one
    # that is compiled wrongly, which the comparison below shows.
    fla.ops.common.chunk_o.TRITON_ABOVE_3_7_1 = True

    def gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor,
                         starts: Tensor) -> Tensor:
        o, _ = chunk_gated_delta_rule(q[None], k[None], v[None], decay[None], beta[None],
                                      use_qk_l2norm_in_kernel=True, cu_seqlens=starts)
        return o[0]


def gated_delta_rule_reference(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor,
                               starts: Tensor) -> Tensor:
    groups = v.shape[1] // q.shape[1]
    q = (F.normalize(q, dim=-1) * q.shape[-1] ** -0.5).repeat_interleave(groups, 1)
    k = F.normalize(k, dim=-1).repeat_interleave(groups, 1)
    first = set(starts[:-1].tolist())
    rows = []
    for t in range(q.shape[0]):
        if t in first:
            state = torch.zeros(*k.shape[1:], v.shape[-1], dtype=torch.promote_types(
                v.dtype, torch.float32), device=v.device)
        state = state * decay[t].exp()[:, None, None]
        delta = (v[t] - (state * k[t][..., None]).sum(-2)) * beta[t][:, None]
        state = state + k[t][..., None] * delta[:, None]
        rows.append((state * q[t][..., None]).sum(-2))
    return torch.stack(rows).to(v.dtype)


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("delta_rule: no NVIDIA GPU that PyTorch can use; the kernel runs nowhere else")
    torch.manual_seed(0)
    starts = torch.tensor([0, 100, 101, 300, 391], dtype=torch.int32, device="cuda")
    tokens = int(starts[-1])

    def normal(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    inputs = [normal(tokens, 1, 128), normal(tokens, 1, 128), normal(tokens, 2, 128),
              -F.softplus(torch.randn(tokens, 2, device="cuda") - 2),
              torch.rand(tokens, 2, device="cuda").bfloat16()]
    out_gradient = normal(tokens, 2, 128)
    results = []
    for function, dtype in ((gated_delta_rule, None), (gated_delta_rule_reference, torch.double)):
        leaves = [(x if dtype is None else x.to(dtype)).detach().requires_grad_() for x in inputs]
        o = function(*leaves, starts)
        (o.double() * out_gradient.double()).sum().backward()
        results.append([o.detach()] + [x.grad for x in leaves])
    worst = 0.0
    for name, fast, exact in zip(("o", "dq", "dk", "dv", "ddecay", "dbeta"), *results):
        gap = ((fast.double() - exact.double()).norm() / exact.double().norm()).item()
        worst = max(worst, gap)
        print(f"{name:7} relative error {gap:.1e}")
    if not worst < 0.02:
        raise SystemExit("delta_rule: the kernel is wrong on this GPU (expected errors below 0.02); "
                         "try another version of Triton")


if __name__ == "__main__":
    main()
