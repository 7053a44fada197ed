use std::fmt::Display;

// Values as kprobe prints them: of a long one the beginning.
fn text(s: &str) -> String {
    if s.len() > 4095 { format!("\"{}\"...", &s[..4095]) } else { format!("\"{}\"", s) }
}
fn list<T: Display>(v: &[T]) -> String {
    let mut out: Vec<String> = v.iter().take(64).map(|x| x.to_string()).collect();
    if v.len() > 64 {
        out.push("...".to_string());
    }
    format!("{{{}}}", out.join(","))
}

struct Order {
    name: String,
    sizes: Vec<i64>,
}

#[inline(never)]
fn see(s: &str, o: &String, v: &Vec<i32>, w: &[u16]) {
    println!("see s={} o={} v={} w={}", text(s), text(o), list(v), list(w));
}

#[inline(never)]
fn take(o: &Order) {
    println!("take name={} sizes={}", text(&o.name), list(&o.sizes));
}

fn main() {
    let see = std::hint::black_box(see as fn(&str, &String, &Vec<i32>, &[u16])); // or the compiler changes what it takes
    let take = std::hint::black_box(take as fn(&Order));
    see("hello", &String::from("own"), &vec![1, 2, -3], &[7, 65535]);
    see("", &String::new(), &vec![], &[]);
    see("ä", &"x".repeat(5000), &vec![5; 1000], &[1; 65]);
    take(&Order { name: "first".to_string(), sizes: vec![1 << 40, -1] });
}
