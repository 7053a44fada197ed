struct Cart {
    total: u64,
}

#[inline(never)]
fn add(c: &mut Cart, count: u32, price: u32) {
    c.total += (count * price) as u64;
}

fn main() {
    let mut c = Cart { total: 0 };
    add(&mut c, 2, 10);
    add(&mut c, std::hint::black_box(3), 5);
    println!("{}", c.total);
}
