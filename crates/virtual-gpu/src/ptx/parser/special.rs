//! The special registers by their names.

use crate::ptx::ast::Special;

/// The special register of this name.
pub(super) fn special(name: &str) -> Option<Special> {
    let name = name.strip_prefix('%')?;
    if let Some((vector, component)) = name.split_once('.') {
        let component = match component {
            "x" => 0,
            "y" => 1,
            "z" => 2,
            _ => return None,
        };
        return Some(match vector {
            "tid" => Special::Tid(component),
            "ntid" => Special::Ntid(component),
            "ctaid" => Special::Ctaid(component),
            "nctaid" => Special::Nctaid(component),
            _ => return None,
        });
    }
    Some(match name {
        "laneid" => Special::Laneid,
        "warpid" => Special::Warpid,
        "nwarpid" => Special::Nwarpid,
        "smid" => Special::Smid,
        "nsmid" => Special::Nsmid,
        "gridid" => Special::Gridid,
        "lanemask_eq" => Special::LanemaskEq,
        "lanemask_le" => Special::LanemaskLe,
        "lanemask_lt" => Special::LanemaskLt,
        "lanemask_ge" => Special::LanemaskGe,
        "lanemask_gt" => Special::LanemaskGt,
        "clock" => Special::Clock,
        "clock_hi" => Special::ClockHi,
        "clock64" => Special::Clock64,
        "globaltimer" => Special::GlobalTimer,
        "globaltimer_lo" => Special::GlobalTimerLo,
        "globaltimer_hi" => Special::GlobalTimerHi,
        "dynamic_smem_size" => Special::DynamicSharedSize,
        "total_smem_size" => Special::TotalSharedSize,
        _ => {
            let number = name.strip_prefix("envreg")?;
            let canonical = number == "0" || !number.starts_with('0');
            Special::Env(
                number
                    .parse()
                    .ok()
                    .filter(|&number: &u8| canonical && number < 32)?,
            )
        }
    })
}

/// Whether PTX has a special register of this name (or vector of them) that the virtual GPU does not.
pub(super) fn is_unsupported_special(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "tid",
        "ntid",
        "ctaid",
        "nctaid",
        "clusterid",
        "nclusterid",
        "cluster_ctaid",
        "cluster_nctaid",
        "cluster_ctarank",
        "cluster_nctarank",
        "is_explicit_cluster",
        "aggr_smem_size",
        "reserved_smem_offset_begin",
        "reserved_smem_offset_end",
        "reserved_smem_offset_cap",
        "reserved_smem_offset_0",
        "reserved_smem_offset_1",
        "current_graph_exec",
    ];
    let Some(name) = name.strip_prefix('%') else {
        return false;
    };
    let name = name.split('.').next().unwrap_or(name);
    let counter = name
        .strip_prefix("pm")
        .map(|rest| rest.strip_suffix("_64").unwrap_or(rest));
    NAMES.contains(&name) || counter.is_some_and(|number| number.len() == 1 && number < "8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_registers_have_their_names() {
        assert_eq!(special("%tid.x"), Some(Special::Tid(0)));
        assert_eq!(special("%nctaid.z"), Some(Special::Nctaid(2)));
        assert_eq!(special("%lanemask_lt"), Some(Special::LanemaskLt));
        assert_eq!(special("%envreg3"), Some(Special::Env(3)));
        assert_eq!(special("%envreg31"), Some(Special::Env(31)));
        for name in [
            "%envreg32",
            "%envreg03",
            "%envreg",
            "%tid.w",
            "%laneid.x",
            "tid.x",
            "%",
            "%r1",
        ] {
            assert_eq!(special(name), None, "{name}");
        }
        assert!(is_unsupported_special("%clusterid.x"));
        assert!(is_unsupported_special("%pm7_64"));
        assert!(!is_unsupported_special("%pm8"));
        assert!(!is_unsupported_special("%r1"));
    }
}
