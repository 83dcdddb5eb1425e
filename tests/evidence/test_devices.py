import pytest
import torch

from in2r.evidence import best_other_image, neighbor_evidence, own_caption_evidence, whole_set_log_posterior


@pytest.mark.gpu
def test_on_the_gpu_as_on_the_cpu():
    generator = torch.Generator().manual_seed(0)
    images, texts, prob = (torch.randn(shape, generator=generator) for shape in ((30, 8), (90, 8), (90,)))
    image_of_text, asked = torch.arange(90) % 30, torch.arange(0, 90, 4)

    def found(device):
        v, u, p, owner, query = (x.to(device) for x in (images, texts, prob.abs(), image_of_text, asked))
        return [
            whole_set_log_posterior(v, u, owner, block_bytes=9999),
            own_caption_evidence(u, owner, p, block_bytes=9999),
            neighbor_evidence(v, u, owner, p, block_bytes=9999),
            *best_other_image([v], [u], query, owner[query], u, owner, p > 0.5, block_bytes=9999),
        ]

    for on_gpu, again, on_cpu in zip(found("cuda"), found("cuda"), found("cpu"), strict=True):
        assert on_gpu.device.type == "cuda"
        assert torch.equal(on_gpu, again)
        torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=1e-4, atol=1e-4)
