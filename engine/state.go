package engine

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"attnbudget/engine/kernel"
)

// stateMagic starts every saved state; the number is the version of its schema.
const stateMagic = "attnbudget/state/1\n"

// maxStateHeader bounds what is allocated for the header of a state on the word of its length.
const maxStateHeader = 1 << 20

// stateHeader is everything that decides whether a state may be loaded, as JSON behind the magic and a uint32 length. The memory
// (see kvcache.Memory.Save) and a CRC-32C of all bytes before it follow.
type stateHeader struct {
	Engine   string `json:"engine"`
	Model    string `json:"model"`
	Mask     string `json:"mask"`
	Stand    string `json:"surrogates,omitempty"` // hash
	TypeK    string `json:"type_k"`
	TypeV    string `json:"type_v"`
	Rotated  bool   `json:"rotated"`
	Caches   string `json:"caches"` // name and layers of the physical caches
	NCtx     int    `json:"n_ctx"`
	NSeqMax  int    `json:"n_seq_max"`
	NUBatch  int    `json:"n_ubatch"`
	Position int32  `json:"position"` // the last one of sequence 0
}

// StateError is a saved state that belongs to something else than this context.
type StateError struct {
	What        string // what differs
	Saved, Here string
}

func (e *StateError) Error() string {
	return fmt.Sprintf("saved state: %s differs: saved with %q, this context has %q", e.What, e.Saved, e.Here)
}

func (c *Context) stateHeader() stateHeader {
	var caches []string
	for _, s := range c.memory.Sizes() {
		caches = append(caches, fmt.Sprintf("%s%v", s.Name, s.Layers))
	}
	p := c.options.params()
	return stateHeader{
		Stand:  c.options.Surrogates.hashOrNone(),
		Engine: ResultVersion(kernel.Name()), Model: c.model.identity(), Mask: c.mask.Canonical(),
		TypeK: p.TypeK.String(), TypeV: p.TypeV.String(), Rotated: c.memory.Rotated(), Caches: strings.Join(caches, " "),
		NCtx: c.options.NCtx, NSeqMax: c.options.NSeqMax, NUBatch: c.options.NUBatch, Position: c.memory.Last(0),
	}
}

// SaveState writes everything the context holds of its sequences.
func (c *Context) SaveState(w io.Writer) error {
	header, err := json.Marshal(c.stateHeader())
	if err != nil {
		return err
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	buf := bufio.NewWriterSize(w, 1<<20)
	out := io.MultiWriter(buf, sum)
	if _, err := io.WriteString(out, stateMagic); err != nil {
		return err
	}
	if err := binary.Write(out, binary.LittleEndian, uint32(len(header))); err != nil {
		return err
	}
	if _, err := out.Write(header); err != nil {
		return err
	}
	if err := c.memory.Save(out); err != nil {
		return err
	}
	if err := binary.Write(buf, binary.LittleEndian, sum.Sum32()); err != nil {
		return err
	}
	return buf.Flush()
}

// LoadState replaces everything the context holds by a saved state; the context then goes on as the one that saved it would
// have. A state of another model, mask, cache type or engine version is refused with a *StateError, and the context stays
// as it was. Of a damaged state, and of one that does not fit into the cells, the context is left empty.
func (c *Context) LoadState(r io.Reader) error {
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	buf := bufio.NewReaderSize(r, 1<<20)
	in := io.TeeReader(buf, sum)
	header, err := readStateHeader(in)
	if err != nil {
		return err
	}
	if err := c.accepts(header); err != nil {
		return err
	}
	if err := c.memory.Restore(in); err != nil {
		return fmt.Errorf("saved state: %w", err)
	}
	want := sum.Sum32()
	var found uint32
	if err := binary.Read(buf, binary.LittleEndian, &found); err != nil || found != want {
		c.memory.Clear()
		return fmt.Errorf("saved state: damaged: its checksum is %08x, its bytes give %08x; make it again", found, want)
	}
	return nil
}

func readStateHeader(r io.Reader) (stateHeader, error) {
	var h stateHeader
	magic := make([]byte, len(stateMagic))
	if _, err := io.ReadFull(r, magic); err != nil {
		return h, fmt.Errorf("saved state: %w", err)
	}
	if string(magic) != stateMagic {
		return h, &StateError{"the format", strings.TrimSpace(string(magic)), strings.TrimSpace(stateMagic)}
	}
	var n uint32
	if err := binary.Read(r, binary.LittleEndian, &n); err != nil {
		return h, fmt.Errorf("saved state: %w", err)
	}
	if n > maxStateHeader {
		return h, fmt.Errorf("saved state: damaged: a header of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return h, fmt.Errorf("saved state: %w", err)
	}
	if err := json.Unmarshal(b, &h); err != nil {
		return h, fmt.Errorf("saved state: damaged header: %w", err)
	}
	return h, nil
}

// accepts compares what decides the content of a state.
func (c *Context) accepts(saved stateHeader) error {
	here := c.stateHeader()
	for _, f := range []struct{ what, saved, here string }{
		{"the engine version", saved.Engine, here.Engine},
		{"the model", saved.Model, here.Model},
		{"the drop mask", saved.Mask, here.Mask},
		{"the surrogates", saved.Stand, here.Stand},
		{"the key cache type", saved.TypeK, here.TypeK},
		{"the value cache type", saved.TypeV, here.TypeV},
		{"the rotation of the cache", fmt.Sprint(saved.Rotated), fmt.Sprint(here.Rotated)},
		{"the set of caches", saved.Caches, here.Caches},
	} {
		if f.saved != f.here {
			return &StateError{f.what, f.saved, f.here}
		}
	}
	return nil
}
