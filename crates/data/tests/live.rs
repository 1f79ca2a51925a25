//! Both ways with the programs themselves, where they are installed: `PLIMSOLL_PYTHON` names an interpreter with some of NumPy, pandas,
//! PyArrow and TensorFlow. Without it only the committed files are read (`formats.rs`).

use plimsoll_budget::Budget;
use plimsoll_data::{Component, Compression, Dataset, Kind};
use plimsoll_tensor::DType;
use std::process::Command;

#[test]
fn others_read_what_we_write() {
    let Ok(python) = std::env::var("PLIMSOLL_PYTHON") else { return };
    let folder = std::env::temp_dir().join(format!("plimsoll-live-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let budget = Budget::unlimited();
    let data = Dataset::range(0, 50, 1).map(
        [
            Component::new("x", DType::F32, &[3]),
            Component::new("label", DType::I64, &[]),
            Component::new("name", Kind::Bytes, &[]),
        ],
        |row, out| {
            let i = row.get::<i64>("value")?[0];
            out.set("x", &[3], &[i as f32 / 4.0, -1.5, 1e-3])?;
            out.set("label", &[], &[i * i * i - 1000])?;
            out.string("name", format!("row \"{i}\", é").as_bytes())
        },
    );
    data.write_npy("x", folder.join("x.npy"), &budget).unwrap();
    data.write_npy("label", folder.join("label.npy"), &budget).unwrap();
    data.select(&["label", "name"]).write_csv(folder.join("table.csv"), &budget).unwrap();
    for (name, compression) in [("", Compression::None), ("GZIP", Compression::Gzip), ("ZLIB", Compression::Zlib)] {
        data.write_tfrecords(folder.join(format!("example{name}")), compression, &budget).unwrap();
    }
    #[cfg(feature = "parquet")]
    {
        data.write_parquet(folder.join("table.parquet"), &budget).unwrap();
        data.write_arrow(folder.join("table.arrow"), &budget).unwrap();
    }
    let script = r#"
import sys, os
folder = sys.argv[1]
done = []
try:
    import numpy as np
    x, label = np.load(folder + "/x.npy"), np.load(folder + "/label.npy")
    i = np.arange(50)
    assert x.dtype == np.float32 and x.shape == (50, 3) and label.dtype == np.int64
    assert (x[:, 0] == i / 4).all() and (x[:, 2] == np.float32(1e-3)).all() and (label == i ** 3 - 1000).all()
    done.append("numpy")
except ImportError:
    pass
try:
    import pandas as pd
    table = pd.read_csv(folder + "/table.csv")
    assert list(table["label"]) == [k ** 3 - 1000 for k in range(50)]
    assert list(table["name"]) == [f'row "{k}", é' for k in range(50)]
    try:
        table = pd.read_parquet(folder + "/table.parquet")
        assert list(table["label"]) == [k ** 3 - 1000 for k in range(50)] and table["x"][4][0] == 1.0
        done.append("pandas' Parquet")
    except ImportError:
        pass
    done.append("pandas")
except ImportError:
    pass
try:
    import pyarrow.csv
    assert pyarrow.csv.read_csv(folder + "/table.csv")["name"].to_pylist() == [f'row "{k}", é' for k in range(50)]
    import pyarrow.feather, pyarrow.parquet
    for table in [pyarrow.parquet.read_table(folder + "/table.parquet"), pyarrow.feather.read_table(folder + "/table.arrow")]:
        assert table.schema.types == [pyarrow.list_(pyarrow.field("item", pyarrow.float32(), False), 3), pyarrow.int64(), pyarrow.string()], table.schema
        assert [x[0] for x in table["x"].to_pylist()] == [k / 4 for k in range(50)]
        assert table["label"].to_pylist() == [k ** 3 - 1000 for k in range(50)]
        assert table["name"].to_pylist() == [f'row "{k}", é' for k in range(50)]
    done.append("pyarrow")
except ImportError:
    pass
try:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import tensorflow as tf
    for kind in ["", "GZIP", "ZLIB"]:
        n = 0
        for k, record in enumerate(tf.data.TFRecordDataset(folder + "/example" + kind, compression_type=kind)):
            e = tf.io.parse_single_example(record, {
                "x": tf.io.FixedLenFeature([3], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64),
                "name": tf.io.FixedLenFeature([], tf.string)})
            assert e["x"].numpy()[0] == k / 4 and e["label"] == k ** 3 - 1000
            assert e["name"].numpy().decode() == f'row "{k}", é'
            n += 1
        assert n == 50
    done.append("tensorflow")
except ImportError:
    pass
print("read by", *done)
"#;
    let output = Command::new(python).args(["-c", script, folder.to_str().unwrap()]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success() && text.contains("read by n"), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_dir_all(folder).unwrap();
}
