package inside

import "kprobe/arch"

// In a kernel a trap at a detour's site is led there by a gate (package inject), once that is in the
// place of the kernel's own handler. Nothing here asks whether it is: the trap's writer has to.

// TrapRoom tells whether one more trap can be led.
func (in *Inside) TrapRoom(d *Detour) bool { return in.Seg.Gate && in.Seg.RoomForTrap(d.Site) }

// LeadTrap has the trap at a detour's site lead to the detour; false where there is no room for that. The
// target is frozen.
func (in *Inside) LeadTrap(d *Detour) bool {
	to, err := d.LandAt()
	if err != nil || !in.Seg.Gate || !in.Seg.LeadTrap(d.Site, to) {
		return false
	}
	in.trapping = true
	return true
}

// LeaveTrap tells that the trap at an address is not there any more. The target is frozen.
func (in *Inside) LeaveTrap(at arch.Addr) { in.Seg.LeaveTrap(at) }
