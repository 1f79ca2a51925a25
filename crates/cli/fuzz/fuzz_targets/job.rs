#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    plimsoll_cli_fuzz::targets::job(bytes);
});
