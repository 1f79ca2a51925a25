#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plimsoll_data_fuzz::read_bytes("arrow", bytes));
