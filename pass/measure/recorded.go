// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/collage-tvm/collage/internal/tracefile"
)

// What the recording (Options.Trace) calls workers by what they are for.
const (
	roleMeasuring       = "worker: measures candidates"
	roleBuilding        = "worker: builds candidates"
	roleComparing       = "worker: runs finalists"
	roleBuildingNetwork = "worker: builds networks"
	roleRunningNetwork  = "worker: runs networks"
)

// asked begins what a worker is asked for. What it was asked for before is over, whether it answered or not; the first
// request, its hello, is a part of its start.
func (p *process) asked(message any) {
	if p.track == nil {
		return
	}
	name, details := told(message)
	if name == "" {
		return
	}
	p.request.End(nil)
	p.request, p.built = p.track.Begin(name, details), false
}

// told is what a request is called, and what else there is to say of it.
func told(message any) (name string, details tracefile.Details) {
	switch m := message.(type) {
	case measureMessage:
		switch {
		case m.Samples == 0:
			return "check " + m.label, nil
		case m.Again:
			return "time " + m.label, tracefile.Details{"samples": m.Samples}
		}
		return "measure " + m.label, tracefile.Details{"samples": m.Samples}
	case soakMessage:
		return "look for a leak", nil
	case buildMessage:
		labels := make([]string, len(m.Items))
		for i := range m.Items {
			labels[i] = m.Items[i].label
		}
		return fmt.Sprintf("build %d computations", len(m.Items)), tracefile.Details{"computations": labels}
	case loadMessage:
		return "load what was built", nil
	case calibrateMessage:
		return "see how fast the machine is", nil
	case compareMessage:
		names := make([]string, len(m.Models))
		for i := range m.Models {
			names[i] = m.Models[i].Name
		}
		return fmt.Sprintf("run %d finalists in turn", len(m.Models)),
			tracefile.Details{"finalists": names, "rounds": m.Rounds}
	case networkBuildMessage:
		return "build " + networkName(m.Out), tracefile.Details{"backends": m.Compilers}
	case networkRunMessage:
		return strings.TrimPrefix(m.Op, "network_") + " " + networkName(m.Model), nil
	case networkDropMessage:
		return "forget what is not needed again", nil
	case networkAgreeMessage:
		return "compare " + networkName(m.Model) + " with another engine", nil
	case networkRoundMessage:
		return "compare ways to round", nil
	case networkWatchMessage:
		return "look at values", nil
	}
	return "", nil
}

// networkName is the key of the network in a file of pass/lane's.
func networkName(path string) string {
	name := filepath.Base(path)
	return strings.TrimPrefix(strings.TrimSuffix(name, filepath.Ext(name)), "network-")
}

// answered takes a message of the worker's.
func (p *process) answered(r *reply) {
	switch r.Event {
	case "built":
		p.built = true
		p.request.Part("build")
	case "progress":
		p.request.Part(fmt.Sprintf("round %d", r.Round))
	case "error":
		p.request.End(tracefile.Details{"outcome": strings.TrimSpace(r.Kind + " " + r.Detail)})
	default:
		if p.built {
			p.request.Part("run")
		}
		p.request.End(nil)
	}
}
