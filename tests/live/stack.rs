//! What `make up` and its parts promise.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};

use tokio::runtime::Runtime;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::instance::{Instance, kill};

/// The rows that one statement answers, as text, first column only.
fn sql(url: &str, statement: &str) -> Vec<String> {
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
        let connection = tokio::spawn(connection);
        let rows = client.simple_query(statement).await.expect("an answer");
        drop(client);
        connection.await.expect("a task that ends").expect("a clean end");
        rows.iter()
            .filter_map(|message| {
                let SimpleQueryMessage::Row(row) = message else { return None };
                row.get(0).map(str::to_owned)
            })
            .collect()
    })
}

/// Sends the bytes to the ClickHouse at the URL, says that no more will come, and returns the answer.
fn raw_http(url: &str, request: &str) -> String {
    let address = url.strip_prefix("http://").expect("plain http");
    let mut stream = TcpStream::connect(address).expect("a listening server");
    stream.write_all(request.as_bytes()).expect("sent");
    stream.shutdown(Shutdown::Write).expect("half closed");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer, or the end");
    answer
}

fn clickhouse(url: &str, statement: &str) -> String {
    let length = statement.len();
    let head = format!("POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    let answer = raw_http(url, &(head + statement));
    assert!(answer.starts_with("HTTP/1.1 200"), "{statement}: {answer}");
    answer.split_once("\r\n\r\n").expect("a head and a body").1.trim().to_owned()
}

fn port(url: &str) -> u16 {
    let digits = url.rsplit_once("127.0.0.1:").expect("loopback").1;
    digits.split('/').next().and_then(|text| text.parse().ok()).expect("a port")
}

#[test]
fn starting_a_server_that_runs_leaves_it_alone() {
    let Some(instance) = Instance::new() else { return };
    instance.run("pg-up");
    let (pid, url) = (instance.pid("postgres"), instance.setting("FINAZ_PG_URL"));
    let said = instance.run("pg-up");
    assert!(said.contains("already running"), "{said}");
    assert_eq!((instance.pid("postgres"), instance.setting("FINAZ_PG_URL")), (pid, url));
}

#[test]
fn a_killed_server_comes_back_with_its_data_and_its_port() {
    let Some(instance) = Instance::new() else { return };
    instance.run("pg-up");
    let url = instance.setting("FINAZ_PG_URL");
    sql(&url, "CREATE TABLE kept (n integer); INSERT INTO kept VALUES (7)");
    kill(instance.pid("postgres"));
    instance.run("pg-up");
    assert_eq!(instance.setting("FINAZ_PG_URL"), url);
    assert_eq!(sql(&url, "SELECT n FROM kept"), ["7"]);
}

#[test]
fn a_port_that_another_program_took_is_replaced_and_the_new_one_is_kept() {
    let Some(instance) = Instance::new() else { return };
    instance.run("pg-up");
    let taken = port(&instance.setting("FINAZ_PG_URL"));
    instance.run("pg-down");
    let squatter = TcpListener::bind(("127.0.0.1", taken)).expect("a free port");
    let said = instance.run("pg-up");
    assert!(said.contains(&format!("port {taken} is taken")), "{said}");
    let url = instance.setting("FINAZ_PG_URL");
    assert_ne!(port(&url), taken);
    assert_eq!(sql(&url, "SELECT 1"), ["1"]);
    instance.run("pg-down");
    drop(squatter);
    instance.run("pg-up");
    assert_eq!(instance.setting("FINAZ_PG_URL"), url);
}

#[test]
fn the_password_is_on_no_command_line_and_in_no_file_that_others_can_read() {
    use std::os::unix::fs::PermissionsExt as _;

    let Some(instance) = Instance::new() else { return };
    instance.run("pg-up");
    let file = instance.state().join("password");
    let password = fs::read_to_string(&file).expect("a password");
    assert!(password.len() >= 32, "a password of {} bytes", password.len());
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    for process in fs::read_dir("/proc").expect("/proc") {
        let line = process.expect("an entry").path().join("cmdline");
        let line = fs::read(line).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(&password), "on a command line");
    }
}

#[test]
fn a_folder_with_other_things_in_it_is_not_taken_for_a_state_folder() {
    let Some(instance) = Instance::new() else { return };
    fs::write(instance.state().join("letters.txt"), "dear").expect("written");
    let output = instance.script("pg-up").output().expect("a script that can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("not a state folder"), "{said}");
    assert_eq!(fs::read_dir(instance.state()).expect("a folder").count(), 1, "something was made");
}

#[test]
fn an_insert_that_is_cut_short_inserts_nothing() {
    let Some(instance) = Instance::new() else { return };
    instance.run("clickhouse-up");
    let url = instance.setting("FINAZ_CLICKHOUSE_URL");
    clickhouse(&url, "CREATE TABLE t (n Int64) ENGINE = MergeTree ORDER BY n");
    let insert = "POST /?query=INSERT+INTO+t+FORMAT+TSV HTTP/1.1\r\n";
    let answers = [
        raw_http(&url, &format!("{insert}Content-Length: 100\r\n\r\n1\n2\n")),
        raw_http(&url, &format!("{insert}Transfer-Encoding: chunked\r\n\r\n2\r\n1\n\r\n")),
        raw_http(&url, &format!("{insert}Transfer-Encoding: chunked\r\n\r\n-2\r\n1\n\r\n")),
    ];
    assert_eq!(answers, ["", "", ""]);
    assert_eq!(clickhouse(&url, "SELECT count() FROM t"), "0");
}

#[test]
fn a_stopped_server_is_seen_and_can_be_ended() {
    let Some(instance) = Instance::new() else { return };
    instance.run("clickhouse-up");
    let pid = instance.pid("clickhouse").to_string();
    let stop = std::process::Command::new("kill").args(["-STOP", &pid]).status();
    assert!(stop.expect("kill can be started").success());
    let output = instance.script("status").output().expect("a script that can be started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && said.contains("mute"), "{said}");
    instance.run("clickhouse-down");
    assert!(!std::path::Path::new(&format!("/proc/{pid}/exe")).exists(), "still there");
}
