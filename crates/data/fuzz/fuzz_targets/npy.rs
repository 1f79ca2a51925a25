#![no_main]
use plimsoll_data_fuzz::{NPY, read_bytes};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| read_bytes(&NPY, bytes));
