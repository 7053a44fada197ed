#!/bin/busybox sh
# The first program of a guest. With kprobe_shell in the kernel's command line it
# gives a shell; else it takes commands from the console, a number before each, and
# answers what they print and then a line with that number and their status.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
mount -t tmpfs tmp /tmp
# Silent, but for the last words of a kernel that panics: with 0 these would be lost, too.
echo 1 >/proc/sys/kernel/printk
ip link set lo up
cd /root
if [ -n "$kprobe_shell" ]; then
	setsid cttyhack sh
	poweroff -f
fi
stty raw -echo
echo "@@0 0@@"
# What a command leaves running becomes a child of the first program, and a shell whose child ends while
# it reads forgets what it has of the line. So another shell reads, whose children are the commands alone.
(
	echo -n sh >/proc/self/comm # which its commands have from it
	while read -r number line; status=$?; [ $status = 0 ]; do
		(eval "$line") </dev/null 2>&1 # a shell of its own, and no program to load
		echo "@@$number $?@@"
	done
	echo "no more commands ($status), not \"$number $line\""
	# Whether that was the console's end, or one read that came out wrong.
	read -r -t 30 number line
	echo "and then ($?): \"$number $line\""
)
poweroff -f
