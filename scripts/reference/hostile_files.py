"""Writes crates/data/tests/hostile: small files that lie about themselves, a folder for each format. Needs nothing but Python.

    python3 scripts/reference/hostile_files.py

What the readers say to each is in `expected.txt` beside the folders; `UPDATE_EXPECT=1 cargo test -p plimsoll-data --test
hostile_files` writes it anew, to be read before it is committed.
"""

import gzip
import pathlib
import struct
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2] / "crates/data/tests"
OUT, FIXTURES = ROOT / "hostile", ROOT / "fixtures"


def write(name, data):
    path = OUT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def fixture(name):
    return (FIXTURES / name).read_bytes()


def npy(descr, shape, data=b"\0" * 40, order="False"):
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def npy_files():
    good = npy("'<f4'", "(5, 2)")
    yield "petabytes", npy("'<f4'", "(1000000000000000, 4)")
    yield "overflow", npy("'<f8'", "(4294967296, 4294967296, 4294967296)")
    yield "negative", npy("'<f4'", "(-1, 4)")
    yield "wide-strings", npy("'<U4294967295'", "(4,)")
    yield "endless-strings", npy("'|S18446744073709551615'", "(4,)")
    yield "endlessly-many-empty-strings", npy("'|S0'", "(7, 4294967296, 4294967296)")
    yield "many-empty-strings", npy("'|S0'", "(7, 1000000000000000000)")
    yield "endlessly-many-beside-none", npy("'<f4'", "(7, 0, 4294967296, 4294967296)")
    yield "objects", npy("'|O'", "(4,)")
    yield "fields", npy("[('a', '<f4')]", "(4,)")
    yield "brackets", npy("'<f4'", "(" * 20000)
    yield "axes", npy("'<f4'", "(" + "1," * 400 + ")")
    yield "scattered", npy("'<f4'", "(5, 2)", order="True")
    yield "header-of-4-gb", b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + good[10:]
    yield "version-9", good[:6] + b"\x09" + good[7:]
    yield "cut", good[:-1]
    yield "cut-in-header", good[:20]
    yield "empty", b""


def member(name, data, claimed=None, method=0, packed=None):
    packed = data if packed is None else packed
    claimed = len(data) if claimed is None else claimed
    crc = zlib.crc32(data)
    local = struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, method, 0, 33, crc, len(packed), claimed, len(name), 0) + name + packed
    central = lambda at: struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 0, method, 0, 33, crc, len(packed), claimed, len(name),
                                     0, 0, 0, 0, 0, at) + name
    return local, central


def archive(*members, n=None):
    body, directory = b"", b""
    for local, central in members:
        directory += central(len(body))
        body += local
    n = len(members) if n is None else n
    return body + directory + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, n, n, len(directory), len(body), 0)


def npz_files():
    good = npy("'<f4'", "(5, 2)")
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    zeros = npy("'<f4'", "(4000000, 2)", bytes(32_000_000))
    packed = deflate.compress(zeros) + deflate.flush()
    yield "longer-than-the-file", archive(member(b"x.npy", good, claimed=1 << 30))
    yield "bomb-cut", archive(member(b"x.npy", zeros, method=8, packed=packed[:-9]))
    yield "unpacks-to-less", archive(member(b"x.npy", npy("'<f4'", "(4000000000, 2)"), method=8,
                                            packed=(lambda c: c.compress(npy("'<f4'", "(4000000000, 2)")) + c.flush())(
                                                zlib.compressobj(9, zlib.DEFLATED, -15))))
    yield "no-arrays", archive(member(b"readme.txt", b"nothing"))
    yield "more-members-than-there-are", archive(member(b"x.npy", good), n=60000)
    yield "different-lengths", archive(member(b"x.npy", good), member(b"y.npy", npy("'<f4'", "(2, 5)")))
    yield "twice", archive(member(b"x.npy", good), member(b"x.npy", good))
    yield "pickle-inside", archive(member(b"x.npy", npy("'|O'", "(4,)")))
    yield "no-archive", good
    yield "empty", b""


def csv_files():
    yield "short-row", b"a,b,c\n1,2,3\n4,5\n"
    yield "long-row", b"a,b\n1,2\n" + b"3," * 1000 + b"\n"
    yield "open-quote", b"a,b\n1,\"two\n3,4\n" + b"x" * 100
    yield "zero-bytes", b"a,b\n1,2\n\0\0\0\n"
    yield "same-names", b"a,a\n1,2\n"
    yield "empty", b""


def idx_files():
    yield "more-than-there-is", bytes([0, 0, 8, 1, 0, 0, 0, 5, 1, 2])
    yield "overflow", bytes([0, 0, 14, 4]) + b"\xff" * 16
    yield "type", bytes([0, 0, 7, 1, 0, 0, 0, 0])
    yield "no-axes", bytes([0, 0, 8, 0])
    yield "axes", bytes([0, 0, 8, 255]) + bytes([0, 0, 0, 1]) * 255
    yield "cut-in-header", bytes([0, 0, 8, 2, 0, 0])
    yield "gzip", gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 0]), mtime=0)


TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data, length=None):
    length = struct.pack("<Q", len(data) if length is None else length)
    return length + masked(length) + data + masked(data)


def tfrecord_files():
    yield "64-gib", record(b"one") + record(b"two" * 20, length=64 << 30)
    yield "2-to-the-63", record(b"two" * 20, length=1 << 63)
    yield "all-ones", record(b"two" * 20, length=(1 << 64) - 1)
    yield "wrong-sum", record(b"one")[:-1] + b"\0"
    yield "wrong-sum-of-length", b"\1" + record(b"one")[1:]
    yield "cut", record(b"one")[:-2]
    yield "cut-in-length", record(b"one")[:7]
    yield "no-message", record(b"\xff" * 20)
    yield "feature-of-16-exabytes", record(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
    yield "nothing-in-it", record(b"")


def parquet_files():
    good = fixture("arrow_none.parquet")
    yield "footer-of-4-gb", good[:-8] + b"\xff\xff\xff\xff" + good[-4:]
    yield "footer-of-2-gb", good[:-8] + b"\xff\xff\xff\x7f" + good[-4:]
    yield "no-footer", good[:-8] + b"\0\0\0\0" + good[-4:]
    yield "encrypted", good[:-4] + b"PARE"
    yield "magic-only", b"PAR1PAR1"
    # A field that nobody knows: a list of two thousand million truths.
    truths = b"\x15\x02\xe9\xf1\xff\xff\xff\xff\x07\0"
    yield "endless-list", b"PAR1" + truths + struct.pack("<I", len(truths)) + b"PAR1"
    # The same behind a field that the format knows as a number, and the bytes call a truth: whoever goes by the latter sees the end.
    truths = b"\x32\0" + truths[2:]
    yield "endless-list-behind-a-truth", b"PAR1" + truths + struct.pack("<I", len(truths)) + b"PAR1"
    yield "cut-in-front", good[100:]
    yield "cut", good[:-1]
    yield "zeros-as-pages", good[:4] + bytes(200) + good[204:]
    yield "ones-as-pages", good[:4] + b"\xff" * 200 + good[204:]
    yield "empty", b""


def arrow_files():
    good = fixture("uncompressed.arrow")
    yield "footer-of-2-gb", good[:-10] + b"\xff\xff\xff\x7f" + good[-6:]
    yield "negative-footer", good[:-10] + b"\xff\xff\xff\xff" + good[-6:]
    yield "no-footer", good[:-10] + b"\0\0\0\0" + good[-6:]
    yield "magic-only", b"ARROW1\0\0\0\0\0\0ARROW1"
    yield "cut", good[:-1]
    yield "cut-in-front", good[:8] + good[400:]
    size = struct.unpack("<i", good[-10:-6])[0]
    start = len(good) - 10 - size
    yield "ones-as-footer", good[:start] + b"\xff" * size + good[-10:]
    yield "zeros-as-batch", good[:400] + bytes(400) + good[800:]
    yield "empty", b""


def image_files():
    png, jpg = fixture("images/cats/0.png"), fixture("images/cats/0.jpg")
    size = lambda w, h: (lambda head: png[:12] + head + struct.pack(">I", zlib.crc32(head)) + png[33:])(
        b"IHDR" + struct.pack(">II", w, h) + png[24:29])
    yield "60000-by-60000.png", size(60000, 60000)
    yield "2-to-the-31.png", size(0x7FFFFFFF, 0x7FFFFFFF)
    yield "no-pixels.png", size(0, 0)
    yield "taller-than-it-is.png", size(8, 5000)
    yield "cut.png", png[:-30]
    at = jpg.index(b"\xff\xc0") + 5
    yield "65535-by-65535.jpg", jpg[:at] + b"\xff\xff\xff\xff" + jpg[at + 4:]
    yield "cut.jpg", jpg[:200]
    yield "no-tables.jpg", jpg[:2] + jpg[jpg.index(b"\xff\xc0"):]
    yield "bitmap.png", b"BM" + bytes(60)
    yield "empty.png", b""


FORMATS = {
    "npy": npy_files, "npz": npz_files, "csv": csv_files, "idx": idx_files, "tfrecord": tfrecord_files, "parquet": parquet_files,
    "arrow": arrow_files, "image": image_files,
}

for folder, files in FORMATS.items():
    for name, data in files():
        write(f"{folder}/{name}" + ("" if "." in name else f".{folder}"), data)
