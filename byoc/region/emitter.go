// SPDX-License-Identifier: Apache-2.0

package region

import "github.com/collage-tvm/collage/byoc"

// Engine gives the emitter of a backend whose regions an engine runs: Register for the backend's Compiler.
func Engine(engine, plugin string, emit Emitter) byoc.Emitter {
	return engineEmitter{engine, plugin, emit}
}

type engineEmitter struct {
	engine, plugin string
	emit           Emitter
}

// Install implements byoc.Emitter.
func (e engineEmitter) Install(b byoc.Backend) error {
	return Register(b.Compiler(), e.engine, e.plugin, e.emit)
}
