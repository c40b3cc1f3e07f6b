// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Spoken is a line that a program wrote, and when.
type Spoken struct {
	Seconds float64
	Line    string
}

// writtenPlan is what of a plan says how its search went; earlier versions of plans have it in the same places, but for
// the timeline.
type writtenPlan struct {
	GraphLevel struct {
		Networks []struct {
			Name      string  `json:"name"`
			Placement string  `json:"placement"`
			Ratio     float64 `json:"ratio"`
		} `json:"networks"`
	} `json:"graph_level"`
	Timeline *struct {
		Networks []struct {
			Placement string  `json:"placement"`
			Seconds   float64 `json:"seconds"`
			Stored    bool    `json:"stored"`
		} `json:"networks"`
	} `json:"timeline"`
	Backends []struct {
		Name      string `json:"name"`
		Operators int    `json:"operators"`
	} `json:"backends"`
	Finalists []struct {
		Name   string `json:"name"`
		Chosen bool   `json:"chosen"`
	} `json:"finalists"`
}

// History fills in what a compilation found and kept: of the plan that it wrote, and where that has no timeline
// (earlier versions wrote none) of what it said while it worked.
func (c *Compilation) History(planFile []byte, said []Spoken) error {
	var p writtenPlan
	if err := json.Unmarshal(planFile, &p); err != nil {
		return fmt.Errorf("its plan cannot be read: %w", err)
	}
	c.Kept = p.kept()
	if p.Timeline == nil {
		c.Found = spokenOf(said)
		return nil
	}
	when := map[string]float64{}
	for _, moment := range p.Timeline.Networks {
		if !moment.Stored {
			when[moment.Placement] = moment.Seconds
		}
	}
	c.Found = []Found{}
	for _, n := range p.GraphLevel.Networks {
		if seconds, built := when[n.Placement]; built && n.Ratio > 0 {
			c.Found = better(c.Found, Found{Seconds: seconds, Name: n.Name, Ratio: n.Ratio})
		}
	}
	return nil
}

// better adds a network where it is the fastest so far.
func better(list []Found, next Found) []Found {
	if len(list) > 0 && next.Ratio >= list[len(list)-1].Ratio {
		return list
	}
	return append(list, next)
}

// measuredLine is how collage compile tells of a network that it has measured, since the graph level's first version.
var measuredLine = regexp.MustCompile(`^ *(.+): [0-9.e+-]+ ms, ([0-9.e+-]+) of plain TVM's time, `)

// spokenOf are the networks that were the fastest so far, by the lines in which they were told.
func spokenOf(said []Spoken) []Found {
	list := []Found{}
	for _, s := range said {
		parts := measuredLine.FindStringSubmatch(s.Line)
		if parts == nil {
			continue
		}
		if ratio, err := strconv.ParseFloat(parts[2], 64); err == nil && ratio > 0 {
			list = better(list, Found{Seconds: s.Seconds, Name: parts[1], Ratio: ratio})
		}
	}
	return list
}

// kept says what was kept: a backend's name, or the placement's shares.
func (p *writtenPlan) kept() string {
	for _, f := range p.Finalists {
		if !f.Chosen {
			continue
		}
		var shares []string
		for _, b := range p.Backends {
			if b.Operators > 0 && !isBackend(f.Name) {
				shares = append(shares, fmt.Sprintf("%s %d", b.Name, b.Operators))
			}
		}
		if len(shares) > 0 {
			return f.Name + ": " + strings.Join(shares, ", ")
		}
		return f.Name
	}
	return ""
}

// ReadReference gives the best latency of each network in an earlier report of bench anytime, or what Collage took in
// one of bench all.
func ReadReference(text []byte) (map[string]float64, error) {
	var report struct {
		Networks []struct {
			Name  string  `json:"name"`
			Best  float64 `json:"best_ms"`
			Peers []struct {
				Peer   string  `json:"peer"`
				Median float64 `json:"median_ms"`
			} `json:"peers"`
		} `json:"networks"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, err
	}
	best := map[string]float64{}
	for _, n := range report.Networks {
		if n.Best > 0 {
			best[n.Name] = n.Best
		}
		for _, p := range n.Peers {
			if p.Peer == Ours && p.Median > 0 {
				best[n.Name] = p.Median
			}
		}
	}
	return best, nil
}
