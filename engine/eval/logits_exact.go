package eval

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
)

// The exact logits file: a head of 4096 bytes, the tokens, then per scored token float32 log-probabilities [n_vocab]. The head
// is the eight bytes "_logp32_", the CRC-32 (IEEE) of the rest of it, and one JSON object, an exactHeader, filled up with
// spaces.

const (
	exactMagic     = "_logp32_"
	exactHeadBytes = 4096
	exactJSON      = len(exactMagic) + 4 // where the JSON object begins
	exactVersion   = 1
)

// Origin is what the log-probabilities in a float32 logits file are of.
type Origin struct {
	Model     string `json:"model_sha256"`             // fingerprint of the GGUF file
	Mask      string `json:"mask"`                     // layers whose attention is dropped: "0,3"
	Surrogate string `json:"surrogate_hash,omitempty"` // of what stands in for it
	TypeK     string `json:"type_k"`
	TypeV     string `json:"type_v"`
	Engine    string `json:"engine"` // its version
}

func (o Origin) check() error {
	if !isSHA256(o.Model) {
		return fmt.Errorf("the model's SHA-256 must have 64 hexadecimal digits and is %q", o.Model)
	}
	return nil
}

func isSHA256(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && s == strings.ToLower(s)
}

func hexSHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// exactHeader is the JSON object in the head.
type exactHeader struct {
	Version int    `json:"version"`
	NCtx    int    `json:"n_ctx"`
	NVocab  int    `json:"n_vocab"`
	NChunk  int    `json:"n_chunk"`
	First   int    `json:"first"` // position in a chunk of the first row, which predicts the token behind it
	Tokens  string `json:"tokens_sha256"`
	Origin
}

func (p *Perplexity) exactHead() []byte {
	return exactHeader{exactVersion, p.NCtx, p.vocab, p.Chunks, p.first(), hexSHA256(tokenBytes(p.text())), p.origin}.head()
}

// head is the head with the header. It panics where the header does not fit, which no model has so many layers for.
func (h exactHeader) head() []byte {
	text, err := json.Marshal(h)
	if err != nil || len(text) > exactHeadBytes-exactJSON {
		panic(fmt.Sprintf("eval: a header of %d bytes, %v", len(text), err))
	}
	head := bytes.Repeat([]byte{' '}, exactHeadBytes)
	copy(head, exactMagic)
	copy(head[exactJSON:], text)
	binary.LittleEndian.PutUint32(head[len(exactMagic):], crc32.ChecksumIEEE(head[exactJSON:]))
	return head
}

func parseExactHead(head []byte) (logitsFile, error) {
	fail := func(format string, a ...any) (logitsFile, error) { return logitsFile{}, fmt.Errorf(format, a...) }
	text := head[exactJSON:]
	if said, is := binary.LittleEndian.Uint32(head[len(exactMagic):]), crc32.ChecksumIEEE(text); said != is {
		return fail("the header's CRC-32 should be %08x and is %08x: the file is damaged", said, is)
	}
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return fail("the header is not a JSON object: %v", err)
	}
	if version.Version != exactVersion {
		return fail("the header is of version %d, expected %d: the file was written by another release of this program", version.Version, exactVersion)
	}
	var h exactHeader
	if err := decodeStrictly(string(text), &h); err != nil {
		return fail("the header is not of version %d: %v", exactVersion, err)
	}
	f := logitsFile{logitsLayout: logitsLayout{LogitsFloat32, h.NCtx, h.NVocab, h.NChunk}, sha256: h.Tokens, origin: h.Origin}
	if want := (passages{NCtx: h.NCtx}).first(); h.First != want {
		return fail("the first scored position is %d, expected %d, half the context", h.First, want)
	}
	if !isSHA256(h.Tokens) {
		return fail("the tokens' SHA-256 must have 64 hexadecimal digits and is %q", h.Tokens)
	}
	return f, h.check()
}

// checkModel refuses a base that is not the model with the given fingerprint.
func (f logitsFile) checkModel(fingerprint string) error {
	switch {
	case fingerprint == "" || f.origin.Model == fingerprint:
		return nil
	case f.format != LogitsFloat32:
		return errors.New("the file is in upstream's format, which does not say which model it is of: the base model cannot be checked")
	}
	return fmt.Errorf("the file is of the model with SHA-256 %s, expected %s", f.origin.Model, fingerprint)
}

// exactLogProb is a log-probability as the file has it: of a logit, by the largest and ln Σ exp(logit − top).
func exactLogProb(logit, top float32, logSum float64) float32 {
	return float32(float64(logit-top) - logSum)
}

// encodeExactly writes one row and gives the log-probability of token, as Run has it.
func encodeExactly(row []byte, logits []float32, token int32) float64 {
	top := logits[0]
	for _, l := range logits[1:] {
		top = max(top, l)
	}
	logSum := math.Log(sumExp(logits, top))
	for i, l := range logits {
		binary.LittleEndian.PutUint32(row[4*i:], math.Float32bits(exactLogProb(l, top, logSum)))
	}
	return float64(logits[token]-top) - logSum
}

// compareExactly compares logits with a row: Σ p·(log p − log q) over all entries. Both sides are rounded in the same way, so
// that equal logits differ by nothing.
func compareExactly(logits []float32, row []byte, token int32) (point, error) {
	top := logits[0]
	for _, l := range logits[1:] {
		top = max(top, l) // NaN wins, and shows in the sums
	}
	logSum := math.Log(sumExp(logits, top))
	base := func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:])) }

	p := point{nll: -exactLogProb(logits[token], top, logSum), nllBase: -base(int(token))}
	mode, modeTop := 0, exactLogProb(logits[0], top, logSum)
	baseMode, baseTop := 0, base(0)
	var sum float64
	for i, l := range logits {
		logP, logQ := base(i), exactLogProb(l, top, logSum)
		if logP > baseTop {
			baseTop, baseMode = logP, i
		}
		if logQ > modeTop {
			modeTop, mode = logQ, i
		}
		if probability := math.Exp(float64(logP)); probability != 0 { // an entry of probability 0 adds nothing, whatever log q
			sum += probability
			p.kld += probability * (float64(logP) - float64(logQ))
		}
	}
	p.sameTop = mode == baseMode
	if !(math.Abs(sum-1) <= 1e-3) {
		return p, &rowError{sum}
	}
	return p, nil
}
