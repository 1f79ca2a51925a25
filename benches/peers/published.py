"""The models of `crates/plimsoll/examples/workloads/zoo.rs` in PyTorch, at the sizes of benches/limits.py: ResNet-50 on 32 images of 112 x 112,
DenseNet-121 on 16 of them, U-Net on 4 of 160 x 208, two LSTMs of 512 on 64 sequences of 128. One batch of made-up numbers; plain gradient descent.
"""

import torch
from torch import nn
from torch.nn import functional as F

import measure

VARIANTS = ["torch", "torch-channels-last", "torch-compile", "torch-compile-channels-last"]
BATCHES = {"resnet50": 32, "densenet121": 16, "unet": 4, "lstm": 64}
a = measure.arguments(__doc__, VARIANTS, steps=1, repeats=5, model="unet")
run = measure.Run(a.model, a.variant)
B, CLASSES, TOKENS = BATCHES[a.model], 100, 1024


def normed(n_in, n_out, kernel, stride=1, relu=True):
    convolution = nn.Conv2d(n_in, n_out, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(n_out), *([nn.ReLU(inplace=True)] if relu else []))


def before(channels):
    return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(inplace=True))


class Bottleneck(nn.Module):
    def __init__(self, n_in, width, stride, first):
        super().__init__()
        self.way = nn.Sequential(normed(n_in, width, 1), normed(width, width, 3, stride), normed(width, 4 * width, 1, relu=False))
        self.shortcut = normed(n_in, 4 * width, 1, stride, relu=False) if first else nn.Identity()

    def forward(self, x):
        return F.relu(self.way(x) + self.shortcut(x), inplace=True)


class Dense(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.way = nn.Sequential(before(channels), nn.Conv2d(channels, 128, 1, bias=False), before(128), nn.Conv2d(128, 32, 3, padding=1, bias=False))

    def forward(self, x):
        return torch.cat([x, self.way(x)], 1)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [64, 128, 256, 512]
        twice = lambda n_in, n_out: nn.Sequential(normed(n_in, n_out, 3), normed(n_out, n_out, 3))
        self.down = nn.ModuleList(twice(n_in, n_out) for n_in, n_out in zip([3, *sizes], sizes))
        self.bottom = twice(512, 1024)
        self.up = nn.ModuleList(normed(2 * n, n, 3) for n in reversed(sizes))
        self.beside = nn.ModuleList(twice(2 * n, n) for n in reversed(sizes))
        self.last = nn.Conv2d(64, 1, 1)

    def forward(self, x):
        seen = []
        for layers in self.down:
            seen.append(layers(x))
            x = F.max_pool2d(seen[-1], 2)
        x = self.bottom(x)
        for up, beside in zip(self.up, self.beside):
            x = beside(torch.cat([seen.pop(), up(F.interpolate(x, scale_factor=2))], 1))
        return self.last(x)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.lstm, self.head = nn.Embedding(TOKENS, 512), nn.LSTM(512, 512, 2, batch_first=True), nn.Linear(512, TOKENS)

    def forward(self, x):
        return self.head(self.lstm(self.tokens(x))[0]).transpose(1, 2)


def classifier(layers, channels):
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def resnet50():
    layers, channels = [normed(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(blocks):
            layers.append(Bottleneck(channels, width, 2 if stage > 0 and block == 0 else 1, block == 0))
            channels = 4 * width
    return classifier(layers, channels)


def densenet121():
    layers, channels = [normed(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for block, n in enumerate([6, 12, 24, 16]):
        for _ in range(n):
            layers.append(Dense(channels))
            channels += 32
        if block < 3:
            layers += [before(channels), nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    return classifier([*layers, before(channels)], channels)


torch.manual_seed(0)
model = {"resnet50": resnet50, "densenet121": densenet121, "unet": UNet, "lstm": Lstm}[a.model]()
if a.model == "lstm":
    x, y, loss_of = torch.randint(0, TOKENS, (B, 128)), torch.randint(0, TOKENS, (B, 128)), F.cross_entropy
elif a.model == "unet":
    x, y, loss_of = torch.rand(B, 3, 160, 208), torch.randint(0, 2, (B, 1, 160, 208)).float(), F.binary_cross_entropy_with_logits
else:
    x, y, loss_of = torch.rand(B, 3, 112, 112), torch.randint(0, CLASSES, (B,)), F.cross_entropy
if a.variant.endswith("channels-last"):  # of images
    model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
forward = torch.compile(model) if "compile" in a.variant else model


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of(forward(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


run.time(step, a.steps, a.repeats, warm_up=1)
run.finish(B)
