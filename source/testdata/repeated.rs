// What LLVM copies once more where it has inlined it, each with a counter of its own.
use std::ptr::{addr_of, addr_of_mut, read_volatile, write_volatile};

static mut CALLS: [i64; 3] = [0; 3];

#[inline(always)]
fn count(i: usize) {
    unsafe {
        let at = addr_of_mut!(CALLS[i]);
        write_volatile(at, read_volatile(at) + 1);
    }
}

struct S {
    n: i64,
    v: Vec<i64>,
}

impl S {
    #[inline]
    fn add(&mut self, x: i64) {
        count(1);
        self.n += x;
    }
    #[inline]
    fn len2(&self) -> usize {
        count(2);
        self.v.len() * 2
    }
}

#[inline]
fn clampi(v: i64, low: i64, high: i64) -> i64 {
    count(0);
    if v < low {
        low
    } else if v > high {
        high
    } else {
        v
    }
}

#[inline(never)]
fn sum(s: &mut S, rounds: usize) -> i64 {
    let mut t = 0;
    for i in 0..rounds {
        t += clampi(s.v[i % s.v.len()], 2, 40);
    }
    for i in 0..rounds {
        if s.len2() > i {
            s.add(i as i64);
        }
    }
    t
}

fn main() {
    let mut s = S { n: 0, v: (0..20).map(|i| i * 7 % 50).collect() };
    let mut t = 0;
    for i in 0..33 {
        t += sum(&mut s, i);
    }
    println!("sum {} {}", t, s.n);
    for (i, name) in ["clampi", "S::add", "S::len2"].iter().enumerate() {
        println!("{} {}", name, unsafe { read_volatile(addr_of!(CALLS[i])) });
    }
}
