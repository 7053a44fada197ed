// Values that have parts: structs, enums, Option and Result, what counts references.
use std::rc::Rc;
use std::sync::Arc;

#[derive(Clone)]
struct Pt { x: i32, y: f64 }
#[allow(dead_code)]
enum Shape { Circle { r: f64 }, Rect(i32, i32), Empty }
#[allow(dead_code)]
enum Dir { Up, Down }

#[inline(never)]
#[no_mangle]
fn see(a: &Option<Pt>, b: &Option<String>, s: &Shape, d: &Dir, v: &Vec<String>, w: &[Pt]) {
    std::hint::black_box((a, b, s, d, v, w));
}

#[inline(never)]
#[no_mangle]
fn also(rc: &Rc<Pt>, arc: &Arc<String>, res: &Result<i32, String>, t: &(i32, String), n: &Option<i32>, o: &Option<Vec<Pt>>) {
    std::hint::black_box((rc, arc, res, t, n, o));
}

fn main() {
    let p = Pt { x: 1, y: 2.5 };
    let v = vec!["a".to_string(), "bb".to_string()];
    see(&Some(p.clone()), &Some("txt".into()), &Shape::Circle { r: 1.5 }, &Dir::Up, &v, &[p.clone(), Pt { x: 3, y: 4.0 }]);
    see(&None, &None, &Shape::Rect(3, 4), &Dir::Down, &vec![], &[]);
    see(&None, &None, &Shape::Empty, &Dir::Down, &vec![], &[]);
    also(&Rc::new(p.clone()), &Arc::new("counted".into()), &Ok(5), &(7, "t".into()), &Some(4), &Some(vec![p.clone()]));
    also(&Rc::new(p.clone()), &Arc::new("".into()), &Err("no".into()), &(7, "t".into()), &None, &None);
}
