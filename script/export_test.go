package script

// Settle makes all processes that were seen old ones, which have their libraries.
func (u *Users) Settle() {
	for _, p := range u.seen {
		p.until = u.until
	}
}
