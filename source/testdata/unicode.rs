// Characters of Unicode, alone and in structs.
#[derive(Clone)]
pub struct Token { pub c: char, pub n: u32, pub s: String }
#[inline(never)]
pub fn look(t: &Token, maybe: Option<char>, c: char) -> u32 {
    std::hint::black_box((t, maybe, c));
    t.n
}
fn main() {
    let t = Token { c: '\u{e9}', n: 3, s: "x".into() };
    std::hint::black_box(look(&t, Some('z'), 'q'));
}
