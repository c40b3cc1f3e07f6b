// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Load says how busy a machine was during a time, beside what was measured there. Shares are of all processors' time: 1
// is all of them all the time.
type Load struct {
	Seconds float64 `json:"seconds"`
	// Processors is how many the kernel counts, those too that this process may not use.
	Processors int `json:"processors"`
	// Own is the share of the processes that took part, Other that of all other ones, Steal what the hypervisor gave to
	// other machines.
	Own   float64 `json:"own_share"`
	Other float64 `json:"other_share"`
	Steal float64 `json:"steal_share"`
	// Average is the kernel's load average over one minute at the end; it counts the own processes too.
	Average float64 `json:"load_average"`
	// Known is false where the kernel does not say (no /proc/stat); all but Seconds is 0 then.
	Known bool `json:"known"`
}

// Busy is the share above which other processes disturb what is measured.
const Busy = 0.05

// Disturbed says that figures taken meanwhile should be taken again.
func (l Load) Disturbed() bool { return l.Other > Busy || l.Steal > Busy }

// String is one line for people.
func (l Load) String() string {
	if !l.Known {
		return fmt.Sprintf("over %.0f s; how busy it was the kernel does not say", l.Seconds)
	}
	text := fmt.Sprintf("over %.0f s other processes took %.1f %% of the %d processors' time, the hypervisor %.1f "+
		"%%; load average %.2f",
		l.Seconds, 100*l.Other, l.Processors, 100*l.Steal, l.Average)
	if l.Disturbed() {
		text += "; the machine was BUSY: take these figures again when it is quiet"
	}
	return text
}

// Meter looks at the machine from Start to Stop.
type Meter struct {
	started time.Time
	before  stat
	own     float64
}

// Together is the load over several times: shares are means, weighted by seconds, Average the greatest. It is known
// where all of them are.
func Together(loads []Load) Load {
	whole := Load{Known: len(loads) > 0}
	for _, l := range loads {
		whole.Seconds += l.Seconds
		whole.Known = whole.Known && l.Known
	}
	if !whole.Known {
		return Load{Seconds: whole.Seconds}
	}
	for _, l := range loads {
		share := 1 / float64(len(loads))
		if whole.Seconds > 0 {
			share = l.Seconds / whole.Seconds
		}
		whole.Own += share * l.Own
		whole.Other += share * l.Other
		whole.Steal += share * l.Steal
		whole.Processors, whole.Average = max(whole.Processors, l.Processors), max(whole.Average, l.Average)
	}
	return whole
}

// stat is what /proc/stat says, in seconds since the machine was started.
type stat struct {
	busy, steal float64
	processors  int
	known       bool
}

// StartMeter begins a measurement.
func StartMeter() *Meter {
	return &Meter{started: time.Now(), before: readStat(), own: ownSeconds()}
}

// Stop ends it. Processes that took part count as own if they are this one or its children that have ended: end them
// first.
func (m *Meter) Stop() Load {
	after := readStat()
	l := Load{Seconds: time.Since(m.started).Seconds(), Known: after.known && m.before.known}
	if !l.Known || l.Seconds <= 0 {
		return l
	}
	l.Processors = after.processors
	whole := l.Seconds * float64(max(l.Processors, 1))
	own := ownSeconds() - m.own
	// The kernel counts in ticks of 10 ms and this program at other moments: differences below zero are none.
	l.Own = max(own/whole, 0)
	l.Other = max((after.busy-m.before.busy-own)/whole, 0)
	l.Steal = max((after.steal-m.before.steal)/whole, 0)
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			l.Average, _ = strconv.ParseFloat(fields[0], 64)
		}
	}
	return l
}

// ticks is the kernel's unit of processor time in /proc: USER_HZ, which is 100 on every Linux that Go runs on.
const ticks = 100.0

func readStat() (s stat) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return s
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "cpu") {
			continue
		}
		if fields[0] != "cpu" {
			s.processors++
			continue
		}
		// user nice system idle iowait irq softirq steal guest guest_nice; guests' time is in user and nice, too.
		for i, field := range fields[1:] {
			n, _ := strconv.ParseFloat(field, 64)
			switch i {
			case 0, 1, 2, 5, 6:
				s.busy += n / ticks
			case 7:
				s.steal = n / ticks
			}
		}
		s.known = true
	}
	return s
}

// ownSeconds is the processor time of this process and of its children that it has reaped.
func ownSeconds() float64 {
	total := 0.0
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		if syscall.Getrusage(who, &usage) == nil {
			total += seconds(usage.Utime) + seconds(usage.Stime)
		}
	}
	return total
}

func seconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
