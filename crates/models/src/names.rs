//! Names of the bindings and outputs of model graphs: what the engine binds.

/// int32 `[rows]`: token ids.
pub const TOKENS: &str = "tokens";
/// int32 `[rows]`: position of each row in its sequence.
pub const POSITIONS: &str = "positions";
/// int32 `[sequences, 4]`: first row, rows, first position, first entry in the page table of each group.
pub const SEQUENCES: &str = "sequences";
/// int32 `[outputs]`: rows whose logits are wanted.
pub const OUTPUTS: &str = "outputs";
/// int32 `[labelled]`: rows with a label.
pub const LABELLED: &str = "labelled";
/// int32 `[labelled]`: the labels.
pub const LABELS: &str = "labels";
/// float32 `[labelled]`: weight / denominator of each labelled row: the cotangent of its loss.
pub const FACTORS: &str = "factors";
/// int32 `[rows]`: the adapter that a row names, or -1.
pub const NAMED: &str = "adapters.named";
/// int32 `[outputs]` or `[labelled]`: the same for the rows that reach the head.
pub const NAMED_HEAD: &str = "adapters.named_head";

/// Output: float32 `[outputs, vocab]`.
pub const LOGITS: &str = "logits";
/// Output: int32 `[outputs]`, the id of the largest logit.
pub const GREEDY: &str = "greedy";
/// Output: float32 `[labelled]`, the loss of each row.
pub const LOSS: &str = "loss";

/// int32 `[entries]`: the pages of the sequences, one after another, in a layer group.
pub fn pages(group: usize) -> String {
    format!("pages.{group}")
}
/// int32 `[rows]`: the cell of a layer group that a row's keys and values are written to.
pub fn cells(group: usize) -> String {
    format!("cells.{group}")
}
/// Store `[cells, kv_heads, head_dim]`: keys of a layer.
pub fn keys(layer: usize) -> String {
    format!("blk.{layer}.keys")
}
/// Store `[cells, kv_heads, value_dim]`: values of a layer.
pub fn values(layer: usize) -> String {
    format!("blk.{layer}.values")
}
/// int32 `[adapters, 2]`: first rank row of each adapter and its rank at a site; rank 0 where it has no pair there.
pub fn adapter_table(site: &str) -> String {
    format!("{site}.table")
}
/// float32 `[adapters]`: scale of each adapter at a site.
pub fn adapter_scales(site: &str) -> String {
    format!("{site}.scales")
}
/// Store `[rank_rows, in]`: the A matrices of the adapters at a site.
pub fn adapter_a(site: &str) -> String {
    format!("{site}.lora_a")
}
/// Store `[rank_rows, out]`: the B matrices of the adapters at a site, transposed.
pub fn adapter_b(site: &str) -> String {
    format!("{site}.lora_b")
}
