// Values that are one of several things, in registers and in memory.
use std::cmp::Ordering;
use std::hint::black_box;
use std::num::NonZeroU32;

#[derive(Clone, Copy)]
pub enum Shape {
    Square(u32),
    Circle(i64),
    Nothing,
}

#[derive(Clone, Copy)]
pub enum Small {
    Byte(u8),
    Pair(u8, u16),
    Empty,
}

#[inline(never)]
pub fn number(n: u64, a: Option<i32>, b: Option<u64>) -> u64 {
    black_box(n + a.unwrap_or(1) as u32 as u64 + b.unwrap_or(1))
}
#[inline(never)]
pub fn text(n: u64, a: Option<&str>, b: Option<Box<(i32, u8)>>) -> u64 {
    black_box(n + a.map_or(1, |s| s.len() as u64) + b.map_or(2, |s| s.1 as u64))
}
#[inline(never)]
pub fn letter(n: u64, a: Option<char>, b: Option<NonZeroU32>, c: Option<bool>) -> u64 {
    black_box(n + a.map_or(1, |c| c as u64) + b.map_or(1, |c| c.get() as u64) + c.map_or(3, |c| c as u64))
}
#[inline(never)]
pub fn shape(n: u64, a: Shape, b: Small, c: Ordering) -> u64 {
    let a = match a {
        Shape::Square(x) => x as u64,
        Shape::Circle(x) => x as u64 & 3,
        Shape::Nothing => 1,
    };
    let b = match b {
        Small::Byte(x) => x as u64,
        Small::Pair(x, y) => x as u64 + y as u64,
        Small::Empty => 2,
    };
    black_box(n + a + b + if c == Ordering::Less { 1 } else { 0 })
}

fn main() {
    let mut sum = 0u64;
    for n in 0..2u64 {
        let some = n == 0;
        sum += number(n, black_box(if some { Some(-5) } else { None }), black_box(if some { None } else { Some(6) }));
        sum += text(n, black_box(if some { Some("hey") } else { None }), black_box(if some { None } else { Some(Box::new((7, 8))) }));
        let (a, b) = if some { (Some('é'), None) } else { (None, NonZeroU32::new(9)) };
        sum += letter(n, black_box(a), black_box(b), black_box(if some { Some(false) } else { None }));
        sum += shape(n, black_box(if some { Shape::Square(3) } else { Shape::Circle(-4) }), black_box(if some { Small::Pair(1, 500) } else { Small::Byte(4) }), Ordering::Less);
        sum += shape(n, black_box(Shape::Nothing), black_box(Small::Empty), Ordering::Greater);
    }
    println!("{sum}");
}
