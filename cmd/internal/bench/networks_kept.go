// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/collage-tvm/collage/internal/atomicfile"
)

// networkKept is what is kept of a network that was run, so that an interrupted benchmark of many goes on.
type networkKept struct {
	// Taken is what it was run with, as of NetworkReport.taken.
	Taken string `json:"taken_with"`
	// Versions are what the engines call themselves, by their columns.
	Versions map[string]string `json:"versions"`
	Row      NetworkRow        `json:"row"`
}

// takeNetwork makes a network's executables and runs it on all engines, or takes what is kept of it.
func (r *NetworkReport) takeNetwork(ctx context.Context, n *Network, o *NetworkOptions) (*NetworkRow, error) {
	if o.Make != nil {
		if err := o.Make(ctx, n); err != nil {
			return nil, err
		}
	}
	if o.Keep == "" {
		return r.runNetwork(ctx, n, o)
	}
	path := filepath.Join(o.Keep, n.Name+".bench.json")
	taken, err := r.taken(n)
	if err != nil {
		return nil, err
	}
	if o.Resume {
		kept, err := readKept[networkKept](path)
		if err != nil {
			return nil, err
		}
		if kept.Taken == taken {
			o.Progress.Note("%s: taken from %s", n.Name, path)
			for i := range r.Peers {
				info := &r.Peers[i]
				if version := kept.Versions[info.Name]; version != "" {
					info.Version = version
				}
				if cell := kept.Row.cell(info.Name); cell != nil {
					cell.other = info.Other // which a file does not say
				}
			}
			return &kept.Row, nil
		}
	}
	row, err := r.runNetwork(ctx, n, o)
	if err != nil {
		return nil, err
	}
	kept := networkKept{Taken: taken, Versions: map[string]string{}, Row: *row}
	for _, p := range r.Peers {
		kept.Versions[p.Name] = p.Version
	}
	err = atomicfile.Write(path, func(w io.Writer) error { return json.NewEncoder(w).Encode(kept) })
	if err != nil { // the report has it all the same
		o.Progress.Note("%s: what was taken is not kept: %v", n.Name, err)
	}
	return row, nil
}

// taken says what makes figures of a network comparable: the machine, the engines and their versions, how they take
// turns, and the executables, by size and time.
func (r *NetworkReport) taken(n *Network) (string, error) {
	files := map[string]string{}
	note := func(path string) error {
		if path == "" {
			return nil
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		files[filepath.Base(path)] = fmt.Sprintf("%d bytes of %v", info.Size(), info.ModTime().UTC())
		return nil
	}
	if err := note(n.Executable); err != nil {
		return "", err
	}
	for _, other := range n.Others {
		if err := note(other.Executable); err != nil {
			return "", err
		}
	}
	var columns []string
	for _, p := range r.Peers {
		if p.Absent == "" {
			columns = append(columns, strings.TrimSpace(p.Name+" "+p.installed))
		}
	}
	text, err := json.Marshal([]any{r.Machine, r.Threads, r.Rounds, r.TurnMS, columns, files})
	return string(text), err
}

// readKept reads what a benchmark keeps of a network; the zero value where there is no such file.
func readKept[T any](path string) (*T, error) {
	kept := new(T)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return kept, nil
	}
	if err == nil {
		err = json.Unmarshal(text, kept)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not what this benchmark keeps: %w; remove it", path, err)
	}
	return kept, nil
}
