// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
)

// ReadNetworks reads a report that bench all wrote. Errors name the file.
func ReadNetworks(path string) (*NetworkReport, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &NetworkReport{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s is no report of bench all: %w", path, err)
	}
	if err := r.complete(); err != nil {
		return nil, fmt.Errorf("%s is no report of bench all: %w", path, err)
	}
	return r, nil
}

// complete fills in what a file does not say. The error says what is not as bench all writes it.
func (r *NetworkReport) complete() error {
	if len(r.Peers) == 0 || r.Peers[0].Name != Ours || r.Rounds == 0 {
		return errors.New("it has no columns of engines, or no rounds")
	}
	columns := r.ran()
	for i := range r.Networks {
		n := &r.Networks[i]
		if n.Taken.IsZero() {
			n.Taken = r.Taken
		}
		if n.Failure != "" {
			n.Cells = []NetworkCell{}
			continue
		}
		if len(n.Cells) != len(columns) || len(n.Cells[0].Turns) == 0 {
			return fmt.Errorf("%s has not one time for each engine", n.Name)
		}
		for k := range n.Cells {
			if n.Cells[k].Peer != columns[k] {
				return fmt.Errorf("%s has %s where %s stands in the report's columns", n.Name, n.Cells[k].Peer, columns[k])
			}
			n.Cells[k].other = r.peer(columns[k]).Other
		}
	}
	return nil
}

// peer is the column of a name; nil for none.
func (r *NetworkReport) peer(name string) *PeerInfo {
	i := slices.IndexFunc(r.Peers, func(p PeerInfo) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Peers[i]
}

// MergeNetworks makes one report of several; paths are what errors call them. A network that several have is the last
// one's. Errors: reports that cannot stand in one table, since the machine, the turns or an engine is another.
func MergeNetworks(reports []*NetworkReport, paths []string) (*NetworkReport, error) {
	first := reports[0]
	merged := &NetworkReport{Machine: first.Machine, Taken: first.Taken, Threads: first.Threads, Rounds: first.Rounds,
		TurnMS: first.TurnMS, Precision: first.Precision}
	for i, r := range reports {
		if what := first.differs(r); what != "" {
			return nil, fmt.Errorf("%s and %s cannot stand in one table: %s", paths[0], paths[i], what)
		}
		if r.Taken.After(merged.Taken) {
			merged.Taken = r.Taken
		}
		for _, p := range r.Peers {
			known := merged.peer(p.Name)
			switch {
			case known == nil:
				merged.Peers = append(merged.Peers, p)
			case known.Absent != "" || p.Name == Ours: // whose version is an executable's name
				*known = p
			case p.Absent == "" && p.Version != "" && known.Version != "" && p.Version != known.Version:
				return nil, fmt.Errorf("%s and an earlier report cannot stand in one table: %s is %s and %s", paths[i], p.Name,
					p.Version, known.Version)
			case p.Absent == "":
				known.hear(p.Version)
			}
		}
	}
	columns := merged.ran()
	for _, r := range reports {
		for _, n := range r.Networks {
			row := n
			if n.Failure == "" {
				row.Cells = nil
				for _, name := range columns {
					row.Cells = append(row.Cells, n.cellOf(name, merged.peer(name).Other))
				}
			}
			i := slices.IndexFunc(merged.Networks, func(other NetworkRow) bool { return other.Name == n.Name })
			if i < 0 {
				merged.Networks = append(merged.Networks, row)
			} else {
				merged.Networks[i] = row
			}
		}
	}
	merged.summarise()
	return merged, nil
}

// cellOf is the cell of a column, which may be no column of the report that the row comes from.
func (n *NetworkRow) cellOf(name string, other bool) NetworkCell {
	i := slices.IndexFunc(n.Cells, func(c NetworkCell) bool { return c.Peer == name })
	if i >= 0 {
		return n.Cells[i]
	}
	return NetworkCell{Peer: name, Absent: "it was not run when this network was", other: other}
}

// differs says in what a report was taken otherwise; "" for nothing.
func (r *NetworkReport) differs(other *NetworkReport) string {
	switch {
	case !reflect.DeepEqual(r.Machine, other.Machine):
		return fmt.Sprintf("the machine is another (%+v and %+v)", r.Machine, other.Machine)
	case r.Threads != other.Threads:
		return fmt.Sprintf("they are of %d and %d threads", r.Threads, other.Threads)
	case r.Rounds != other.Rounds || r.TurnMS != other.TurnMS:
		return fmt.Sprintf("they have %d turns of %.0f ms and %d of %.0f ms", r.Rounds, r.TurnMS, other.Rounds,
			other.TurnMS)
	case r.Precision != other.Precision:
		return fmt.Sprintf("they are in %s and in %s", r.Precision, other.Precision)
	}
	return ""
}
