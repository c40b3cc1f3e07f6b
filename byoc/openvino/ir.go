// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"
	"strings"

	"github.com/collage-tvm/collage/relay"
)

// The elements of OpenVINO IR, version 11.

type netXML struct {
	XMLName xml.Name   `xml:"net"`
	Name    string     `xml:"name,attr"`
	Version int        `xml:"version,attr"`
	Layers  []layerXML `xml:"layers>layer"`
	Edges   []edgeXML  `xml:"edges>edge"`
}

type layerXML struct {
	ID      int       `xml:"id,attr"`
	Name    string    `xml:"name,attr"`
	Type    string    `xml:"type,attr"`
	Version string    `xml:"version,attr"`
	Data    *dataXML  `xml:"data"`
	Info    *infoXML  `xml:"rt_info"`
	Inputs  *portsXML `xml:"input"`
	Outputs *portsXML `xml:"output"`
}

type dataXML struct {
	Attrs []xml.Attr `xml:",any,attr"`
}

// infoXML is what OpenVINO is told of a layer beside what it computes.
type infoXML struct {
	Attributes []infoAttribute `xml:"attribute"`
}

type infoAttribute struct {
	Name    string `xml:"name,attr"`
	Version string `xml:"version,attr"`
}

// precise has a layer computed in its own type, whatever the model is compiled for.
var precise = &infoXML{[]infoAttribute{{"precise", "0"}}}

type portsXML struct {
	Ports []portXML `xml:"port"`
}

// add appends a port; the first one makes the list.
func (p *portsXML) add(id int, t *relay.Type) *portsXML {
	if p == nil {
		p = &portsXML{}
	}
	p.Ports = append(p.Ports, portXML{id, elements[t.DType].port, t.Shape})
	return p
}

type portXML struct {
	ID        int     `xml:"id,attr"`
	Precision string  `xml:"precision,attr"`
	Dims      []int64 `xml:"dim"`
}

type edgeXML struct {
	FromLayer int `xml:"from-layer,attr"`
	FromPort  int `xml:"from-port,attr"`
	ToLayer   int `xml:"to-layer,attr"`
	ToPort    int `xml:"to-port,attr"`
}

// element is one of OpenVINO's names of a dtype.
type element struct {
	// attribute is the name in attributes, port that in ports.
	attribute, port string
	bytes           int64
}

// elements are the dtypes that may stand in a region, by TVM's names. What is computed on them is for the checks of the
// operators to say.
var elements = map[string]element{
	"float32": {"f32", "FP32", 4},
	"int32":   {"i32", "I32", 4},
	"int64":   {"i64", "I64", 8},
	"int8":    {"i8", "I8", 1},
	"uint8":   {"u8", "U8", 1},
	"bool":    {"boolean", "BOOL", 1},
}

// text writes the document.
func (n *netXML) text() ([]byte, error) {
	body, err := xml.MarshalIndent(n, "", " ")
	if err != nil {
		return nil, err
	}
	return []byte(`<?xml version="1.0"?>` + "\n" + string(body) + "\n"), nil
}

// attr is one attribute of a layer's data element.
func attr(name, value string) xml.Attr { return xml.Attr{Name: xml.Name{Local: name}, Value: value} }

// attrInts is an attribute that is a list.
func attrInts(name string, list ...int64) xml.Attr { return attr(name, join(list, ",")) }

// attrBool is an attribute that is a truth value.
func attrBool(name string, value bool) xml.Attr {
	if value {
		return attr(name, "true")
	}
	return attr(name, "false")
}

// plainName makes a name that needs no escapes.
func plainName(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || strings.ContainsRune(`"&<>'\`, r) {
			return '_'
		}
		return r
	}, s)
}
